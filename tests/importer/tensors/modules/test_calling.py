"""Modules as users have them: with state, wrapped, on other devices, with foreign types."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
import torch

from optc.backends.onnxruntime.legalize.masks import expand_masks
from optc.errors import InputError, OptcError, UnsupportedError
from optc.importer.tensors.modules.calling import unwrapped
from optc.importer.tensors.open import import_tensors
from optc.system.sources.tensor_source import TensorSource
from tests.support.ragged import run

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def module_of(forward: Any, **buffers: torch.Tensor) -> torch.nn.Module:
    module = torch.nn.Module()
    for name, value in buffers.items():
        module.register_buffer(name, value)
    module.forward = types.MethodType(forward, module)
    return module


def counting(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.n.add_(1)
    return torch.as_tensor(x * self.n)


def noisy(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x, 0.5)


def drawing(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.argsort(torch.rand(64)) + x.sum().long()


def remembering(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.n = self.n + x.sum()
    return torch.cat([x.sum()[None], self.n])


AGAIN = "'output' is another one when it is called again"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("forward", [counting, noisy, drawing, remembering])
def test_an_answer_that_changes_from_call_to_call_is_refused(
    forward: Any, dtype: torch.dtype
) -> None:
    module = module_of(forward, n=torch.ones(1, dtype=dtype))
    with pytest.raises(UnsupportedError, match=AGAIN):
        import_tensors(TensorSource(module, (X.to(dtype) + 2,)))


def test_so_is_that_of_a_program() -> None:
    program = torch.export.export(module_of(counting, n=torch.ones(1)), (X,))
    with pytest.raises(UnsupportedError, match=AGAIN):
        import_tensors(TensorSource(program))


def test_a_count_that_no_output_reads_is_taken() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.n.add_(1)
        return x * 2

    assert import_tensors(TensorSource(module_of(forward, n=torch.zeros(1)), (X,))).samples


def test_a_module_that_writes_into_its_input_does_not_change_samples() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1) * 2

    found = import_tensors(TensorSource(module_of(forward), (X.clone(),)))
    assert found.reference is not None
    given = {"x": X.numpy().copy()}
    np.testing.assert_array_equal(found.reference(given)["output"], (X.numpy() + 1) * 2)
    np.testing.assert_array_equal(given["x"], X.numpy())


def test_the_reference_is_the_module_itself_evaluated() -> None:
    calls = []

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        calls.append(self.training)
        return x * 3

    module = module_of(forward)
    found = import_tensors(TensorSource(module, (X,)))
    assert found.reference is not None
    calls.clear()
    found.reference({"x": X.numpy()})
    assert (calls, module.training) == ([False], True)


def test_padding_of_encoders_is_compared_as_it_is_exported() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    x, padding = torch.ones(2, 3, 8), torch.tensor([[False, False, True], [False] * 3])
    keywords = {"src_key_padding_mask": padding}
    found = import_tensors(TensorSource(layer, (x,), keywords))
    assert found.reference is not None
    given = {"src": x.numpy(), "src_key_padding_mask": padding.numpy()}
    expand_masks(found.model)
    (graph,) = run(found.model, given)
    np.testing.assert_allclose(graph, found.reference(given)["output"], atol=1e-5)
    assert torch.backends.mha.get_fastpath_enabled()


def test_wrappers_are_taken_off() -> None:
    inner = torch.nn.Linear(4, 3)
    for wrapped in (torch.compile(inner), torch.nn.DataParallel(inner)):
        assert unwrapped(wrapped) is inner
    assert unwrapped(inner) is inner


def test_arrays_are_an_example() -> None:
    found = import_tensors(TensorSource(torch.nn.Linear(4, 3), (X.numpy(),)))
    assert found.interface.inputs[0].dims == (2, 4)


def scripted() -> tuple[torch.nn.Module, Any]:
    return torch.jit.trace(torch.nn.ReLU(), X), X


def projected() -> tuple[torch.nn.Module, Any]:
    return torch.nn.Sequential(torch.nn.ReLU(), torch.nn.LSTM(4, 3, proj_size=2)), X


def quantized() -> tuple[torch.nn.Module, Any]:
    return torch.nn.Sequential(torch.ao.nn.quantized.dynamic.Linear(4, 3)), X


@pytest.mark.filterwarnings("ignore:.*jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*(ao.quantization|Lazy|TypedStorage)")
@pytest.mark.parametrize(
    ("made", "error", "problem"),
    [
        (quantized, UnsupportedError, "Sequential, 0: it is a Linear that PyTorch quantized"),
        (lambda: (torch.nn.LazyLinear(3), X), InputError, "weight: it is lazy"),
        (scripted, UnsupportedError, "it is TorchScript"),
        (projected, UnsupportedError, "1: it is an LSTM with projections"),
        (lambda: (torch.nn.Linear(4, 3, device="meta"), X), InputError, "weight: it has no values"),
        (lambda: (torch.nn.ReLU(), X.to("meta")), InputError, "input 0: it has no values"),
        (lambda: (torch.nn.ReLU(), X.to_sparse()), UnsupportedError, "it is no dense tensor"),
        (lambda: (torch.nn.Tanh(), X + 1j), UnsupportedError, "it has complex numbers"),
    ],
)
def test_what_engines_do_not_take_is_said(made: Any, error: type[OptcError], problem: str) -> None:
    module, x = made()
    with pytest.raises(error, match=problem) as refused:
        import_tensors(TensorSource(module, (x,)))
    assert refused.value.hint


def test_bfloat16_is_computed_in_float32() -> None:
    module = torch.nn.Linear(4, 3).bfloat16()
    found = import_tensors(TensorSource(module, (X.bfloat16(),)))
    assert [found.interface.inputs[0].dtype, found.samples[0]["input"].dtype] == ["float32"] * 2
    assert "bfloat16" in found.warnings[0]
    assert found.reference is None
    (y,) = run(found.model, {"input": X.numpy()})
    np.testing.assert_allclose(y, module.float()(X).detach().numpy(), atol=1e-6)
