"""What a load takes from the manifest. Attacks on whole artifacts: tests/cli."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.files import ArtifactFiles
from optc.artifact.manifest import FileEntry
from optc.backends.tvm import BACKEND
from optc.backends.tvm.engine_data import read_data
from optc.errors import ArtifactError
from tests.artifact.toy import CODE, DATA, toy_engine

CUDA: dict[str, Any] = {
    "images": {"90": "kernels.sm_90.cubin"},
    "digest": "0",
    "range_values": 1,
    "kernels": ["step"],
}
CUDA_FILES = (*CODE, "weights.bin", "libtvm_runtime_cuda.so", "kernels.sm_90.cubin")


def check(data: dict[str, Any], *names: str) -> None:
    """Check an engine in ``engines/own`` beside one that has the files ``names``."""
    engine = replace(toy_engine("own" if "shared" in data else "target"), data=data)
    listed = ["engines/own/engine.so", *(f"engines/target/{name}" for name in names)]
    files = ArtifactFiles(Path("a"), [FileEntry(path, 10_240, "00" * 32) for path in listed])
    BACKEND.check(engine, files.of_engine(engine))


def test_the_data_of_a_cpu_engine() -> None:
    found = read_data(DATA)
    assert (found.shared, found.features, found.cuda) == (".", ("avx2",), None)
    assert [placed.end for placed in found.weights] == [512, 10_240]


def test_weights_and_libraries_may_be_another_engines() -> None:
    check({**DATA, "shared": "../target"}, *CODE, "weights.bin")
    with pytest.raises(ArtifactError, match=r"engines/other/libtvm_runtime\.so"):
        check({**DATA, "shared": "../other"}, *CODE, "weights.bin")


def test_every_file_of_a_cuda_engine_must_be_listed() -> None:
    data = {"cuda": CUDA, "ffi": "0.1", "weights": []}
    check(data, *CUDA_FILES)
    for name in CUDA_FILES:
        with pytest.raises(ArtifactError, match=name):
            check(data, *(other for other in CUDA_FILES if other != name))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": {}}, "names no device code"),
        ({"images": {"sm_90": "x"}}, "names no device code"),
        ({"images": {"90": 1}}, "'90' is not str but int"),
        ({"images": {"90": "/etc/passwd"}}, "'/etc/passwd', which the manifest does not list"),
        ({"kernels": []}, "names no device code"),
        ({"kernels": [1]}, "'kernels' holds int, not str"),
        ({"range_values": 0}, "'range_values' is 0"),
        ({"digest": None}, "'digest' is not str"),
    ],
)
def test_data_of_cuda_that_no_build_writes(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        check({"cuda": {**CUDA, **change}, "ffi": "0.1", "weights": []}, *CUDA_FILES)
