from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from optc.artifact.files import ArtifactFiles
from optc.artifact.manifest import FileEntry
from optc.backends.onnxruntime import BACKEND
from optc.errors import ArtifactError
from optc.system.hardware.target import parse_target
from tests.artifact.toy import toy_engine

DATA = {"provider": "CPUExecutionProvider", "release": "1.31"}


def check(data: dict[str, Any], target: str = "x86-64-v3", *, without: str = "") -> None:
    engine = replace(toy_engine(), data=data, target=parse_target(target))
    names = [name for name in ("model.onnx", "weights.bin") if name != without]
    entries = [FileEntry(f"engines/target/{name}", 1, "00" * 32) for name in names]
    BACKEND.check(engine, ArtifactFiles(Path("a"), entries).of_engine(engine))


def test_what_a_build_writes_is_taken() -> None:
    check(DATA)
    check({**DATA, "provider": "CUDAExecutionProvider"}, "cuda:sm_90")


@pytest.mark.parametrize("name", ["model.onnx", "weights.bin"])
def test_both_files_must_be_listed(name: str) -> None:
    with pytest.raises(ArtifactError, match=f"engines/target/{name}', which the manifest does not"):
        check(DATA, without=name)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "missing required field 'provider'"),
        ({**DATA, "provider": "x"}, "provider: expected text that matches .CPUExecutionProvider"),
        ({**DATA, "provider": ["x"]}, "provider: expected 'str', got 'array'"),
        ({**DATA, "release": 1.31}, "release: expected 'str', got 'float'"),
        ({**DATA, "release": "1.x"}, "release: expected text that matches"),
        ({**DATA, "release": "9" * 5000}, "release: expected text that matches"),
        ({**DATA, "novelty": 1}, "object contains unknown field 'novelty'"),
        ({**DATA, "provider": "CUDAExecutionProvider"}, "for a cpu target and runs on CUDA"),
    ],
)
def test_what_no_build_writes_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        check(data)
