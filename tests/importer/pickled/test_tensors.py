"""Checkpoints of ``torch.save``: every number as transformers reads it, and no code run."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from optc.errors import InputError, OptcError, UnsupportedError
from optc.importer.checkpoint import checkpoint_files, read_tensors
from optc.importer.import_model import import_model
from optc.importer.pickled.child import TYPES, tensors, work
from optc.importer.pickled.tensors import read_pickled
from optc.system.processes.child_job import ChildJob
from tests.importer.decoders import build, config_of, save


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader's work is done in this process, by the same JSON texts: importing PyTorch into
    another one takes seconds."""
    monkeypatch.setattr(
        ChildJob, "run", lambda _, request, max_bytes=0: json.loads(json.dumps(work(request)))
    )


def saved(path: Path, content: object, **more: Any) -> Path:
    torch.save(content, path, **more)
    return path


@pytest.mark.usefixtures("here")
def test_every_type_is_read_as_by_pytorch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    whole = torch.randn(6, 5)
    given = {
        str(kind): (torch.randint(0, 2, (3, 4)) if not kind.is_floating_point else whole).to(kind)
        for kind in TYPES
    }
    given |= {
        "part": whole[2:5],
        "shared": whole,
        "scalar": torch.tensor(3.5),
        "parameter": torch.nn.Parameter(whole),
        "none": torch.empty(0, 4),
    }
    file = saved(tmp_path / "pytorch_model.bin", given)
    found = read_pickled([file], every=True)
    assert set(found) == set(given)
    for name, tensor in given.items():
        assert found[name].shape == tuple(tensor.shape)
        stored = found[name].read_stored()
        if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn):
            tensor = tensor.detach().view(torch.uint8 if tensor.itemsize == 1 else torch.uint16)
        assert np.array_equal(stored.ravel(), tensor.detach().numpy().ravel()), name
    floats = read_pickled([file])
    assert {one.dtype for one in floats.values()} == {"F64", "F32", "F16", "BF16"}
    assert np.array_equal(floats["part"].read_rows(1, 3), whole[3:5].numpy())


@pytest.mark.usefixtures("here")
def test_shards_and_their_index(tmp_path: Path) -> None:
    names = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    for number, name in enumerate(names):
        saved(tmp_path / name, {f"w{number}": torch.full((2, 2), float(number))})
    index = {"weight_map": {"w0": names[0], "w1": names[1]}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    files = checkpoint_files(tmp_path)
    assert [file.name for file in files] == names
    found = read_tensors(files, None)
    assert {name: one.read_rows(0, 2)[0, 0] for name, one in found.items()} == {"w0": 0, "w1": 1}
    with pytest.raises(InputError, match="also in"):
        read_pickled([files[0], files[0]])


def compressed(path: Path) -> None:
    saved(path, {"w": torch.ones(4)})
    with zipfile.ZipFile(path) as archive:
        records = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in records.items():
            archive.writestr(name, data)


def shortened(path: Path) -> None:
    """A tensor that says to be longer than the record that holds it."""
    saved(path, {"w": torch.ones(4)})
    with zipfile.ZipFile(path) as archive:
        records = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in records.items():
            archive.writestr(name, data[:4] if name.endswith("data/0") else data)


BAD: dict[str, tuple[Callable[[Path], object], str, type[OptcError]]] = {
    "code": (
        lambda path: saved(path, {"w": Evil(path.parent / "ran")}),
        r"torch\.load\(weights_only=True\) refuses it",
        InputError,
    ),
    "plain pickle": (
        lambda path: path.write_bytes(pickle.dumps(Evil(path.parent / "ran"))),
        r"no checkpoint as PyTorch writes it since 1\.6",
        UnsupportedError,
    ),
    "old format": (
        lambda path: saved(path, {"w": torch.ones(2)}, _use_new_zipfile_serialization=False),
        r"since 1\.6 .*save_pretrained",
        UnsupportedError,
    ),
    "turned": (
        lambda path: saved(path, {"w": torch.ones(2, 3).T}),
        "w: it does not lie row by row",
        UnsupportedError,
    ),
    "sparse": (
        lambda path: saved(path, {"w": torch.ones(2, 3).to_sparse()}),
        "w: |refuses it",
        InputError,
    ),
    "complex": (
        lambda path: saved(path, {"w": torch.ones(2, dtype=torch.complex64)}),
        "tensors of torch.complex64 are not read",
        UnsupportedError,
    ),
    "nested": (
        lambda path: saved(path, {"state_dict": {"w": torch.ones(2)}}),
        "state_dict: no tensor, but dict",
        InputError,
    ),
    "list": (lambda path: saved(path, [torch.ones(2)]), "no tensors by name", InputError),
    "number": (lambda path: saved(path, {3: torch.ones(2)}), "no tensors by name", InputError),
    "compressed": (compressed, "not as PyTorch writes it", InputError),
    "shortened": (shortened, "w: it does not lie within its file|refuses it", InputError),
    "text": (lambda path: path.write_text("weights"), r"since 1\.6", UnsupportedError),
    "pipe": (os.mkfifo, "no regular file", InputError),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    make, message, kind = BAD[name]
    make(tmp_path / "pytorch_model.bin")
    with pytest.raises(kind, match=message) as caught:
        tensors(tmp_path / "pytorch_model.bin")
    assert caught.value.where.startswith(str(tmp_path / "pytorch_model.bin"))
    assert not (tmp_path / "ran").exists(), "code of the pickle was run"


def test_every_changed_byte_is_read_or_told(tmp_path: Path) -> None:
    file = saved(tmp_path / "pytorch_model.bin", {"a": torch.ones(4, 3), "b": torch.ones(2).half()})
    whole = file.read_bytes()
    directory = whole.index(b"PK\x01\x02")  # names, places and sizes of the records
    for at in range(directory, len(whole)):
        file.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        try:
            found = tensors(file)
        except OptcError as error:
            assert str(error).startswith(str(file))  # noqa: PT017 - or it is read
            continue
        for _, shape, first in found.values():
            assert 0 <= first <= len(whole) - 2 * np.prod(shape)


def test_the_refusal_of_the_child_is_raised_here(tmp_path: Path) -> None:
    file = saved(tmp_path / "pytorch_model.bin", {"w": Evil(tmp_path / "ran")})
    with pytest.raises(InputError, match="holds more than tensors") as caught:
        read_pickled([file])
    assert caught.value.where == str(file)
    assert not (tmp_path / "ran").exists()


def test_a_model_of_pickles_is_that_of_safetensors(tmp_path: Path) -> None:
    model = build(config_of("Llama", tie_word_embeddings=False))
    plain = save(model, tmp_path / "plain", torch.bfloat16)
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text((plain / "config.json").read_text())
    weights = model.state_dict()
    saved(other / "pytorch_model.bin", {k: v.to(torch.bfloat16) for k, v in weights.items()})
    first, second = (import_model(folder).model.graph.initializers for folder in (plain, other))
    assert set(first) == set(second)
    for name, value in first.items():
        one, two = value.const_value, second[name].const_value
        assert one is not None
        assert two is not None
        assert np.array_equal(one.numpy(), two.numpy()), name


@pytest.mark.usefixtures("here")
def test_weights_that_are_not_finite_are_named(tmp_path: Path) -> None:
    model = build(config_of("Llama"))
    folder = save(model, tmp_path / "plain", torch.float32)
    weights = dict(model.state_dict())
    weights["model.norm.weight"] = torch.full_like(weights["model.norm.weight"], float("nan"))
    (folder / "model.safetensors").unlink()
    saved(folder / "pytorch_model.bin", weights)
    with pytest.raises(InputError, match=r"bin: model\.norm\.weight: .*holds NaN or infinities"):
        import_model(folder)
