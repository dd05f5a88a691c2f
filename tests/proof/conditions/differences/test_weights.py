"""Tensors by the digests of their bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from optc import registry
from optc.artifact.manifest import Manifest
from optc.backends.tvm import BACKEND
from optc.errors import UnavailableError
from optc.proof.conditions.differences import weights
from optc.proof.conditions.differences.weights import range_digest, weight_changes
from tests.artifact.toy import DATA, WEIGHTS
from tests.proof.conditions.differences.artifacts import of_backend, write_changed


def test_a_changed_byte_is_in_one_tensor(tmp_path: Path) -> None:
    a, b = write_changed(tmp_path / "a"), write_changed(tmp_path / "b", flip=600)
    (found,) = weight_changes(a, b)
    assert (found.engine, found.same, found.reason) == ("target", 1, "")
    (tensor,) = found.tensors
    assert tensor["name"] == "b"
    described = {"dtype": "int8", "shape": [9728], "bytes": 9728}
    assert tensor["a"] == {**described, "sha256": hashlib.sha256(WEIGHTS[512:]).hexdigest()}
    flipped = bytearray(WEIGHTS)
    flipped[600] ^= 1
    assert tensor["b"] == {**described, "sha256": hashlib.sha256(flipped[512:]).hexdigest()}
    assert found.to_json()["changed"] == 1


def test_equal_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = write_changed(tmp_path / "a"), write_changed(tmp_path / "b")
    monkeypatch.setattr(weights, "range_digest", None)
    (found,) = weight_changes(a, b)
    assert (found.same, found.tensors) == (2, ())


def test_tensors_of_other_names_shapes_and_types(tmp_path: Path) -> None:
    first, second = DATA["weights"]
    renamed = {**first, "name": "c", "dtype": "int32"}

    def change(manifest: Manifest) -> Manifest:
        data = {**DATA, "weights": [renamed, {**second, "shape": [4864, 2]}]}
        return replace(manifest, engines=(replace(manifest.engines[0], data=data),))

    a, b = write_changed(tmp_path / "a"), write_changed(tmp_path / "b", change=change)
    (found,) = weight_changes(a, b)
    assert found.same == 0
    assert [(t["name"], t["a"] is None, t["b"] is None) for t in found.tensors] == [
        ("c", True, False),
        ("b", False, False),
        ("a", False, True),
    ]
    assert found.tensors[1]["a"]["sha256"] == found.tensors[1]["b"]["sha256"]


def test_why_tensors_cannot_be_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = write_changed(tmp_path / "a")
    other = write_changed(tmp_path / "other", change=of_backend("onnxruntime"))
    assert "weights of tvm and onnxruntime have no tensors" in weight_changes(a, other)[0].reason
    strange = write_changed(tmp_path / "x", change=of_backend("x"))
    (unknown,) = weight_changes(strange, strange)
    assert unknown.reason == "the backend x is not installed"
    assert unknown.to_json()["changed"] is None
    sealed = write_changed(tmp_path / "t", change=of_backend("tensorrt"))
    (old,) = weight_changes(sealed, sealed)
    assert "has its weights in it and no list of them (compile the model again" in old.reason
    with monkeypatch.context() as patch:
        patch.setattr(registry, "backend", lambda name: object())
        assert "have their weights within" in weight_changes(sealed, sealed)[0].reason

    def missing(self: object, engine: object, files: object) -> None:
        raise UnavailableError("the package 'onnx-ir' is not installed", where="engine")

    monkeypatch.setattr(type(BACKEND), "stored_tensors", missing)
    assert weight_changes(a, a)[0].reason == "engine: the package 'onnx-ir' is not installed"


def test_engines_of_one_artifact_only_are_left_out(tmp_path: Path) -> None:
    def change(manifest: Manifest) -> Manifest:
        return replace(manifest, engines=(replace(manifest.engines[0], name="own"),))

    a, b = write_changed(tmp_path / "a"), write_changed(tmp_path / "b", change=change)
    assert weight_changes(a, b) == []
    assert registry.backend("tvm") is BACKEND


def test_a_range_begins_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_CHUNK", 100)
    (tmp_path / "f").write_bytes(WEIGHTS)
    for offset, length in ((0, 10240), (7, 1000), (10239, 1), (5, 0)):
        expected = hashlib.sha256(WEIGHTS[offset : offset + length]).hexdigest()
        assert range_digest(tmp_path / "f", offset, length) == expected
