"""The list of an engine's weights: written by a build, read by ``optc diff``."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from msgspec.structs import replace

from optc.artifact.artifact import Artifact
from optc.artifact.files import EngineFiles
from optc.artifact.manifest import Manifest
from optc.artifact.writer import ArtifactWriter
from optc.backends.tensorrt.build import save
from optc.backends.tensorrt.tensor_list import TENSORS_FILE, read_tensors, write_tensors
from optc.errors import ArtifactError
from optc.proof.conditions.differences.weights import weight_changes
from tests.artifact.toy import toy_manifest, write_files

#: One that lies beside the graph, one within it, and one of packed elements.
WEIGHTS = {
    "large": np.arange(600, dtype=np.float16).reshape(20, 30),
    "small": np.array([3, 5], np.int64),
    "packed": ir.Tensor(np.arange(6).astype(np.uint8) % 8, dtype=ir.DataType.UINT4),
}


def model_of(scale: int = 1) -> ir.Model:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 21}, name="g")
    for name, given in WEIGHTS.items():
        tensor = given if isinstance(given, ir.Tensor) else ir.Tensor(given * scale, name=name)
        tensor.name = name
        graph.register_initializer(ir.Value(name=name, const_value=tensor, shape=tensor.shape))
    return ir.Model(graph, ir_version=10)


def artifact_of(output: Path, scale: int = 1) -> Artifact:
    """An artifact whose engine says that TensorRT built it, with a list of weights."""
    scratch = output.with_name(f"{output.name}-model")
    scratch.mkdir()
    with ArtifactWriter(output) as writer:
        write_files(writer)
        write_tensors(save(model_of(scale), scratch), writer.folder / "engines/target")
        manifest: Manifest = toy_manifest(writer.hashed_files())
        (engine,) = manifest.engines
        engine = replace(engine, backend="tensorrt", files=(*engine.files, TENSORS_FILE))
        return writer.commit(replace(manifest, engines=(engine,)), {})


def engine_files(artifact: Artifact) -> EngineFiles:
    return artifact.files.of_engine(artifact.manifest.engines[0])


def test_every_tensor_is_listed_by_the_digest_of_its_bytes(tmp_path: Path) -> None:
    listed = read_tensors(True, engine_files(artifact_of(tmp_path / "a")))
    assert {(t.name, t.dtype, t.shape, t.bytes) for t in listed} == {
        ("large", "float16", (20, 30), 1200),
        ("small", "int64", (2,), 16),
        ("packed", "uint4", (6,), 3),
    }
    digests = {t.name: t.sha256 for t in listed}
    for name in ("large", "small"):
        tensor = WEIGHTS[name]
        assert isinstance(tensor, np.ndarray)
        assert digests[name] == hashlib.sha256(tensor.tobytes()).hexdigest()


def test_two_engines_are_compared_by_their_lists(tmp_path: Path) -> None:
    a, same = artifact_of(tmp_path / "a"), artifact_of(tmp_path / "same")
    b = artifact_of(tmp_path / "b", 2)
    (equal,) = weight_changes(a, same)
    assert (equal.same, equal.tensors, equal.reason) == (3, (), "")
    (found,) = weight_changes(a, b)
    assert (found.same, found.reason) == (1, "")
    assert sorted(tensor["name"] for tensor in found.tensors) == ["large", "small"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "tensors"),
        ({"tensors": [{"name": "a"}]}, r"tensors\[0\]"),
        (
            {
                "tensors": [
                    {"name": "a", "dtype": "x", "shape": [1], "bytes": 1, "sha256": "A" * 64}
                ]
            },
            r"sha256: expected text that matches",
        ),
    ],
)
def test_a_damaged_list(tmp_path: Path, value: object, message: str) -> None:
    artifact = artifact_of(tmp_path / "a")
    path = artifact.path / "engines/target" / TENSORS_FILE
    path.write_text(json.dumps(value))
    with pytest.raises(ArtifactError, match=message):
        read_tensors(True, engine_files(artifact))
