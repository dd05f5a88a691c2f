"""Engines over packed rows: data that does not fit the interface is refused before a load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from optc.artifact.files import ArtifactFiles
from optc.artifact.manifest import FileEntry
from optc.backends.tvm import BACKEND
from optc.backends.tvm.loaded.packed import load_encoder
from optc.backends.tvm.packed_data import read_packed
from optc.errors import ArtifactError
from optc.runtime.executable.tensors_interface import DimRange, TensorsInterface, TensorSpec
from tests.artifact.toy import CODE, DATA, toy_engine

DIMS = ("batch", "tokens")
INTERFACE = TensorsInterface(
    inputs=(
        *(TensorSpec(name, "int64", DIMS) for name in ("ids", "mask", "types")),
        TensorSpec("scale", "float32", DIMS),
        TensorSpec("flag", "int64", ("batch",)),
    ),
    outputs=(
        TensorSpec("vector", "float32", ("batch", 8)),
        TensorSpec("states", "float32", (*DIMS, 8)),
    ),
    symbols={"batch": DimRange(1, 64), "tokens": DimRange(1, 128)},
)
PACKED: dict[str, Any] = {
    "ids": "ids",
    "mask": "mask",
    "types": "types",
    "vocabulary": 100,
    "type_count": 2,
    "position_count": 0,
    "by_token": ["states"],
    "max_rows": 128,
    "max_sequences": 8,
    "layers": [],
}


def check(**changes: Any) -> None:
    """What opening an artifact does with its engine."""
    data = {**DATA, "packed": {**PACKED, **changes}}
    engine = replace(toy_engine(), interface=INTERFACE, data=data)
    paths = [f"engines/target/{name}" for name in (*CODE, "weights.bin")]
    files = ArtifactFiles(Path("a"), [FileEntry(path, 10_240, "00" * 32) for path in paths])
    BACKEND.check(engine, files.of_engine(engine))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mask": "", "types": "", "type_count": 0},
        {"position_count": 64, "max_rows": 64},
    ],
)
def test_data_that_fits(changes: dict[str, Any]) -> None:
    check(**changes)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no ids": ({"ids": "x"}, "'ids' names 'x', which is no input"),
    "empty ids": ({"ids": ""}, "'ids' names '', which is no input"),
    "no mask": ({"mask": "x"}, "'mask' names 'x', which is no input"),
    "no types": ({"types": "x"}, "'types' names 'x', which is no input"),
    "an output": ({"mask": "vector"}, "'mask' names 'vector', which is no input"),
    "twice": ({"mask": "ids"}, "two of 'ids', 'mask' and 'types' are the same input"),
    "dims": ({"mask": "flag"}, r"the input 'flag' is not of \[batch, tokens\]"),
    "floats": ({"mask": "scale"}, "the input 'scale' is of float32, not of integers"),
    "no output": ({"by_token": ["x"]}, "'by_token' names 'x', which is no output"),
    "one row": ({"by_token": ["vector"]}, "the output 'vector' does not begin with"),
    "types": ({"type_count": 0}, "there are no types"),
    "rows": ({"max_rows": 127}, "sequences of 128 tokens, in calls of 127 rows"),
}


IMAGES = TensorsInterface(
    inputs=(TensorSpec("x", "float32", ("batch", 3, 8, 12)),),
    outputs=(
        TensorSpec("vector", "float32", ("batch", 8)),
        TensorSpec("states", "float32", ("batch", 2, 7, 4)),
    ),
    symbols={"batch": DimRange(1, 64)},
)
PATCHES = {"input": "x", "sizes": [4, 4], "tokens": 7, "rate": 1, "lead": 1}
OF_IMAGES: dict[str, Any] = {
    **PACKED,
    **dict.fromkeys(("ids", "mask", "types"), ""),
    "vocabulary": 0,
    "type_count": 0,
    "patches": PATCHES,
    "heads": {"states": 2},
}


def check_images(patches: dict[str, Any], **changes: Any) -> None:
    data = {**DATA, "packed": {**OF_IMAGES, "patches": {**PATCHES, **patches}, **changes}}
    read_packed(data, IMAGES)


def test_patches_that_fit() -> None:
    check_images({})
    check_images({"sizes": [8, 12], "lead": 6})


@pytest.mark.parametrize(
    ("patches", "changes", "message"),
    [
        ({"input": "y"}, {}, "'patches' names another input"),
        ({}, {"ids": "x", "vocabulary": 3}, "it has 'patches' and ids"),
        ({"sizes": [4]}, {}, "has no such patches"),
        ({"sizes": [5, 4]}, {}, r"patches of \[5, 4\] do not fill \[8, 12\]"),
        ({"sizes": [2, 4]}, {}, "a sequence has 7 rows, and more patches"),
        ({"tokens": 8}, {}, "the output 'states' does not begin with"),
        ({}, {"heads": {}}, "the output 'states' does not begin with"),
        ({}, {"heads": {"z": 2, "states": 2}}, "names 'z', which is no output"),
        ({}, {"max_rows": 6}, "sequences of 7 tokens, in calls of 6 rows"),
    ],
)
def test_patches_that_do_not(
    patches: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArtifactError, match=message):
        check_images(patches, **changes)


def test_images_of_another_type() -> None:
    bytes_ = replace(IMAGES, inputs=(TensorSpec("x", "uint8", ("batch", 3, 8, 12)),))
    with pytest.raises(ArtifactError, match="is of uint8, not of float32"):
        read_packed({**DATA, "packed": OF_IMAGES}, bytes_)


@pytest.mark.parametrize("what", WRONG)
def test_data_that_does_not(what: str, tmp_path: Path) -> None:
    changes, message = WRONG[what]
    loads: list[Callable[[], object]] = [
        lambda: check(**changes),
        lambda: load_encoder(
            tmp_path, INTERFACE, {**DATA, "packed": {**PACKED, **changes}}, threads=1
        ),
    ]
    for load in loads:
        with pytest.raises(ArtifactError, match=message) as refused:
            load()
        assert refused.value.where == "tvm engine: data: packed"
