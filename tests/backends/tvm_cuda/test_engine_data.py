"""What a load of a CUDA engine takes from the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from optc.artifact.files import ArtifactFiles
from optc.artifact.manifest import FileEntry
from optc.backends.tvm_cuda import BACKEND
from optc.errors import ArtifactError
from tests.artifact.toy import CODE, toy_engine

CUDA: dict[str, Any] = {
    "images": {"90": "kernels.sm_90.cubin"},
    "digest": "0",
    "range_values": 1,
    "kernels": ["step"],
}
CUDA_FILES = (*CODE, "weights.bin", "libtvm_runtime_cuda.so", "kernels.sm_90.cubin")


def check(data: dict[str, Any], *names: str) -> None:
    """Check an engine that has the files ``names``."""
    engine = replace(toy_engine("own"), data=data)
    listed = [f"{engine.folder}/{name}" for name in names]
    files = ArtifactFiles(Path("a"), [FileEntry(path, 10_240, "00" * 32) for path in listed])
    BACKEND.check(engine, files.of_engine(engine))


def test_every_file_of_a_cuda_engine_must_be_listed() -> None:
    data = {"cuda": CUDA, "ffi": "0.1", "weights": []}
    check(data, *CUDA_FILES)
    for name in CUDA_FILES:
        with pytest.raises(ArtifactError, match=name):
            check(data, *(other for other in CUDA_FILES if other != name))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": {}}, r"cuda.images: expected 'object' of length >= 1"),
        ({"images": {"sm_90": "x"}}, r"cuda.images: expected text that matches .* as its key"),
        ({"images": {"90": 1}}, r"cuda.images\[...\]: expected 'str', got 'int'"),
        ({"images": {"90": "/etc/passwd"}}, "'/etc/passwd', which the manifest does not list"),
        ({"kernels": []}, r"cuda.kernels: expected 'array' of length >= 1"),
        ({"kernels": [1]}, r"cuda.kernels\[0\]: expected 'str', got 'int'"),
        ({"range_values": 0}, r"cuda.range_values: expected 'int' >= 1"),
        ({"digest": None}, r"cuda.digest: expected 'str', got 'null'"),
        ({"novelty": 1}, r"cuda: object contains unknown field 'novelty'"),
    ],
)
def test_data_of_cuda_that_no_build_writes(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        check({"cuda": {**CUDA, **change}, "ffi": "0.1", "weights": []}, *CUDA_FILES)
