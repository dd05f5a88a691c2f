"""Which tensors an engine's model keeps beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from msgspec.structs import replace

from optc.artifact.files import ArtifactFiles, EngineFiles
from optc.artifact.manifest import FileEntry
from optc.backend import TensorsBackend
from optc.backends.onnxruntime import BACKEND
from optc.backends.onnxruntime.weights import store_weights
from optc.errors import ArtifactError, UnavailableError
from tests.artifact.toy import toy_engine

LARGE = np.arange(600, dtype=np.float32).reshape(20, 30)
ENGINE = replace(toy_engine(), backend="onnxruntime")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An engine's model of a large weight, another one, and a small one that stays in it."""
    arrays = {"w": LARGE, "small": np.ones(4, np.float32), "q": np.ones((2000,), np.int8)}
    values = [
        ir.Value(name=name, const_value=ir.tensor(array, name=name), shape=ir.Shape(array.shape))
        for name, array in arrays.items()
    ]
    graph = ir.Graph([], [], nodes=[], initializers=values, opset_imports={"": 23})
    model = ir.Model(graph, ir_version=10)
    made = tmp_path / "engines/target"
    made.mkdir(parents=True)
    store_weights(model, made / "weights.bin")
    ir.save(model, made / "model.onnx")
    return tmp_path


def files(folder: Path, *names: str, size: int | None = None) -> EngineFiles:
    entries = []
    for name in names or ("model.onnx", "weights.bin"):
        path = f"engines/target/{name}"
        entries.append(FileEntry(path, size or (folder / path).stat().st_size, "00" * 32))
    return ArtifactFiles(folder, entries).of_engine(ENGINE)


def test_tensors_and_where_they_lie(folder: Path) -> None:
    assert isinstance(BACKEND, TensorsBackend)
    w, q = BACKEND.stored_tensors(ENGINE, files(folder))
    assert (w.name, w.dtype, w.shape, w.bytes) == ("w", "float", (20, 30), 2400)
    assert (q.name, q.dtype, q.shape, q.bytes) == ("q", "int8", (2000,), 2000)
    data = w.path.read_bytes()
    assert data[w.offset : w.offset + w.bytes] == LARGE.tobytes()
    assert data[q.offset : q.offset + q.bytes] == b"\x01" * 2000


def test_a_file_that_is_not_listed_is_not_opened(folder: Path) -> None:
    with pytest.raises(ArtifactError, match=r"weights\.bin', which the manifest does not list"):
        BACKEND.stored_tensors(ENGINE, files(folder, "model.onnx"))


def test_a_tensor_beyond_its_file_is_refused(folder: Path) -> None:
    with pytest.raises(ArtifactError, match="the tensor 'w' ends beyond"):
        BACKEND.stored_tensors(ENGINE, files(folder, size=2399))


def test_without_onnx_ir(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx_ir", None)
    with pytest.raises(UnavailableError, match=r"onnx-ir.*pip install 'optc\[compile\]'"):
        BACKEND.stored_tensors(ENGINE, files(folder))
