"""Modules and exported programs: their graphs give what they give, under their names."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from optc import Dim
from optc.errors import InputError, UnsupportedError
from optc.importer.tensors.open import import_tensors
from optc.importer.tensors.program import import_module, read_program
from optc.runtime.executable.tensors_interface import DimRange
from optc.system.sources.tensor_source import TensorSource
from tests.support.ragged import run


class Small(torch.nn.Module):
    """Two outputs by name, a keyword that is a tensor and one that is none."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 3)
        self.drop = torch.nn.Dropout(0.5)

    def forward(
        self, x: torch.Tensor, scale: torch.Tensor | None = None, power: int = 1
    ) -> dict[str, torch.Tensor]:
        y = self.drop(self.linear(x)) ** power
        return {"logits": y if scale is None else y * scale, "sum": y.sum(-1)}


ROWS = {"x": {0: Dim("rows", 1, 16)}}


@pytest.fixture(scope="module")
def program() -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows", min=1, max=16)
    return torch.export.export(
        Small().eval(), (torch.zeros(2, 4),), dynamic_shapes={"x": {0: rows}}
    )


def test_a_module_s_graph_reference_and_names() -> None:
    module = Small()
    kwargs = {"scale": torch.full((1,), 3.0), "power": 2}
    found = import_tensors(TensorSource(module, (torch.ones(2, 4),), kwargs, ROWS))
    assert found.name == "Small"
    assert [one.name for one in found.interface.inputs] == ["x", "scale"]
    assert [one.name for one in found.interface.outputs] == ["logits", "sum"]
    assert found.interface.inputs[0].dims == ("rows", 4)
    assert found.interface.symbols == {"rows": DimRange(1, 16)}
    assert module.training
    x = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    given = {"x": x, "scale": np.full(1, 2.0, np.float32)}
    with torch.no_grad():
        wanted = module.eval()(torch.from_numpy(x), torch.full((1,), 2.0), 2)
    assert found.reference is not None
    for outputs in (
        dict(zip(("logits", "sum"), run(found.model, given), strict=True)),
        found.reference(given),
    ):
        for name, value in wanted.items():
            np.testing.assert_allclose(outputs[name], value.numpy(), rtol=1e-5, atol=1e-6)


class Looked(torch.nn.Module):
    """Rows of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(5, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.table(ids)
        return found


@pytest.mark.parametrize("ids", [[[5, 0]], [[-1, 0]], [[1 << 40, 0]]])
def test_inputs_at_which_a_module_fails_are_one_clear_error(ids: list[list[int]]) -> None:
    given = (torch.zeros((1, 2), dtype=torch.int64),)
    reference = import_module(Looked(), "looked", given, {}, {}).reference
    assert reference is not None
    with pytest.raises(InputError, match="PyTorch fails at these inputs: IndexError") as caught:
        reference({"ids": np.array(ids, np.int64)})
    assert caught.value.where == "looked"
    assert "tokenizer" in str(caught.value.hint)


class Sum(torch.nn.Module):
    """As many inputs as there are."""

    def forward(self, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        return sum(more, x)


def test_inputs_of_any_number_have_the_dimensions_of_their_argument() -> None:
    rows = {0: Dim("rows", 1, 16)}
    args = (torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3))
    found = import_module(Sum(), "s", args, {}, {"x": rows, "more": rows})
    assert [one.dims for one in found.interface.inputs] == [("rows", 3)] * 3


def test_each_module_keeps_its_mode() -> None:
    module = torch.nn.Sequential(Small().eval(), torch.nn.ReLU())
    wrapper = torch.nn.Sequential(module[0].drop, module[0].linear, module[1])
    import_module(wrapper, "w", (torch.ones(2, 4),), {}, {})
    modes = [wrapper.training, module[0].drop.training, module[1].training]
    assert modes == [True, False, True]


def test_a_program_and_its_file_are_one_model(
    program: torch.export.ExportedProgram, tmp_path: Path
) -> None:
    torch.export.save(program, tmp_path / "p.pt2")
    one, other = (import_tensors(TensorSource(s)) for s in (program, tmp_path / "p.pt2"))
    assert (other.name, one.digest) == ("p", other.digest)
    assert other.interface.inputs[0].dims == ("x_0", 4)
    assert other.interface.symbols == {"x_0": DimRange(1, 16)}
    assert other.samples[0]["x"].shape == (2, 4)


@pytest.mark.parametrize("config", ["model_weights_config", "model_constants_config"])
def test_pickles_in_a_program_are_refused(
    program: torch.export.ExportedProgram, tmp_path: Path, config: str
) -> None:
    torch.export.save(program, tmp_path / "p.pt2")
    with (
        zipfile.ZipFile(tmp_path / "p.pt2") as plain,
        zipfile.ZipFile(tmp_path / "bad.pt2", "w") as made,
    ):
        for name in plain.namelist():
            content = plain.read(name)
            if config in name:
                stated = json.loads(content)
                stated["config"]["evil"] = {"use_pickle": True}
                content = json.dumps(stated).encode()
            made.writestr(name, content)
    with pytest.raises(InputError, match=r"bad\.pt2: 'evil' is pickled"):
        read_program(tmp_path / "bad.pt2")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive"])
def test_a_file_that_is_no_program(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.pt2").write_bytes(content)
    with pytest.raises(InputError, match="is no exported program"):
        read_program(tmp_path / "p.pt2")


def test_without_an_example_the_error_shows_forward() -> None:
    with pytest.raises(InputError, match="no example of the module's inputs") as caught:
        import_tensors(TensorSource(Small()))
    assert "scale: torch.Tensor | None" in caught.value.hint
    assert "args=(x,)" in caught.value.hint


def test_what_cannot_be_captured_says_so() -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    said = r"the module: forward chooses its way, or a size, by .*\(test_program.py:\d+, in forward"
    with pytest.raises(UnsupportedError, match=said) as caught:
        import_tensors(TensorSource(Branching(), (torch.ones(2),)))
    assert "torch.cond" in caught.value.hint


def test_factories_give_modules_with_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_here.py").write_text(
        "import torch\n"
        "def linear():\n    return torch.nn.Linear(4, 3), (torch.ones(2, 4),)\n"
        "def broken():\n    raise KeyError('k')\n"
    )
    monkeypatch.chdir(tmp_path)
    found = import_tensors(TensorSource("made_here:linear"))
    assert (found.name, found.interface.inputs[0].dims) == ("linear", (2, 4))
    with pytest.raises(InputError, match="made_here:broken: KeyError: 'k'"):
        import_tensors(TensorSource("made_here:broken"))
    with pytest.raises(InputError, match="ModuleNotFoundError"):
        import_tensors(TensorSource("no_such_module:f"))


@pytest.mark.parametrize("model", [3, None, object()])
def test_what_is_no_model(model: Any) -> None:
    with pytest.raises(InputError, match="is no model"):
        import_tensors(TensorSource(model))


def test_an_unknown_argument_is_named() -> None:
    dynamic = {"y": {0: Dim("rows", 1, 16)}}
    with pytest.raises((InputError, UnsupportedError), match="no argument 'y'"):
        import_tensors(TensorSource(Small(), (torch.ones(2, 4),), {}, dynamic))


class _Guarded(torch.nn.Module):
    """Guards a logarithm and a root by sums that are less than 1e-8."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x * x + 1e-10) + torch.sqrt(x.abs() + 1e-12) * (1 + 4e-6)


def test_small_guards_stay() -> None:
    x = torch.tensor([[0.0, 1e-6, -2.0]])
    found = import_module(_Guarded(), "guarded", (x,), {}, {})
    (y,) = run(found.model, {"x": x.numpy()})
    np.testing.assert_allclose(y, _Guarded()(x).numpy(), rtol=1e-6)


def test_messages_have_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("it failed at \x1b[96mstep 2\x1b[0m of 3\nand more")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(UnsupportedError, match=r"it failed at step 2 of 3 \("):
        import_module(Small(), "small", (torch.ones(2, 4),), {}, {})


class Guarded(torch.nn.Module):
    """Takes another way from some batches on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] < 10 else x - 1


def test_bounds_that_the_module_takes_are_said() -> None:
    with pytest.raises(UnsupportedError) as refused:
        import_module(Guarded(), "guarded", (torch.ones(3, 2),), {}, {"x": {0: Dim("rows", 1, 64)}})
    assert refused.value.hint == "dimensions that the module takes: rows of max 9"
    found = import_module(Guarded(), "g", (torch.ones(3, 2),), {}, {"x": {0: Dim("rows", 1, 9)}})
    assert found.interface.symbols == {"rows": DimRange(1, 9)}
