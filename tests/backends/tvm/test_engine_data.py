"""What a load takes from the manifest. Attacks on whole artifacts: tests/cli."""

from __future__ import annotations

import json
import posixpath
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from optc.artifact.files import ArtifactFiles
from optc.artifact.manifest import FileEntry
from optc.backend import TensorsBackend
from optc.backends.tvm import BACKEND
from optc.backends.tvm.engine_data import read_data
from optc.errors import ArtifactError
from tests.artifact.toy import CODE, DATA, toy_engine


def check(data: dict[str, Any], *names: str) -> None:
    """Check an engine in ``engines/own`` beside one that has the files ``names``."""
    engine = replace(toy_engine("own" if "shared" in data else "target"), data=data)
    listed = ["engines/own/engine.so", *(posixpath.join("engines/target", n) for n in names)]
    listed = [posixpath.normpath(path) for path in listed]
    files = ArtifactFiles(Path("a"), [FileEntry(path, 10_240, "00" * 32) for path in listed])
    BACKEND.check(engine, files.of_engine(engine))


def test_the_data_of_a_cpu_engine() -> None:
    found = read_data(DATA)
    assert (found.shared, found.features) == (".", ("avx2",))
    assert [placed.end for placed in found.weights] == [512, 10_240]


def test_weights_and_libraries_may_be_another_engines() -> None:
    check({**DATA, "shared": "../target"}, *CODE, "weights.bin")
    with pytest.raises(ArtifactError, match=r"engines/other/libtvm_runtime\.so"):
        check({**DATA, "shared": "../other"}, *CODE, "weights.bin")


def test_stored_tensors_may_lie_in_another_engines_file() -> None:
    engine = replace(toy_engine("own"), data={**DATA, "shared": "../target"})
    listed = [FileEntry("engines/target/weights.bin", 10_240, "00" * 32)]
    a, b = BACKEND.stored_tensors(engine, ArtifactFiles(Path("a"), listed).of_engine(engine))
    assert (a.name, a.dtype, a.shape, a.offset, a.bytes) == ("a", "float32", (16, 8), 0, 512)
    assert (b.name, b.dtype, b.shape, b.offset, b.bytes) == ("b", "int8", (9728,), 512, 9728)
    assert a.path == b.path == Path("a/engines/target/weights.bin")
    assert isinstance(BACKEND, TensorsBackend)


def own_weights() -> dict[str, Any]:
    """Of an engine that has the second weight in a file of its own, at the place of the first."""
    first, second = DATA["weights"]
    own = {**second, "offset": first["offset"], "own": True}
    return {**DATA, "shared": "../target", "weights": [dict(first), own]}


def test_some_weights_may_lie_in_a_file_of_its_own() -> None:
    found = read_data(own_weights())
    assert [placed.own for placed in found.weights] == [False, True]
    assert json.loads(json.dumps(to_builtins(found.weights[1]))) == own_weights()["weights"][1]
    with pytest.raises(ArtifactError, match=r"engines/own/weights\.bin"):
        check(own_weights(), *CODE, "weights.bin")
    check(own_weights(), *CODE, "weights.bin", "../own/weights.bin")


def test_weights_of_one_file_do_not_overlap() -> None:
    overlapping = own_weights()
    overlapping["weights"][0]["own"] = True
    with pytest.raises(ArtifactError, match="overlaps"):
        read_data(overlapping)
