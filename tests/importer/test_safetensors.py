"""The reader of safetensors against the safetensors library, and broken files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from optc.errors import InputError
from optc.importer.conversion.tensor import same_content
from optc.importer.safetensors import StoredTensor, read_header

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def write(file: Path, header: dict[str, Any], data: bytes = b"") -> Path:
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return file


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_those_of_the_library(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    # an odd header length and an odd number of halves leave tensors unaligned
    tensors = {"odd": torch.randn(3).to(dtype), "weight": torch.randn(7, 5).to(dtype)}
    save_file(tensors, tmp_path / "m.safetensors")
    found = read_header(tmp_path / "m.safetensors")
    assert set(found) == {"odd", "weight"}
    expected = tensors["weight"].to(torch.float32).numpy()
    np.testing.assert_array_equal(found["weight"].read_rows(2, 6), expected[2:6])
    np.testing.assert_array_equal(found["odd"].read_rows(0, 3), tensors["odd"].float().numpy())
    assert found["weight"].read_rows(0, 7).dtype == np.float32


@given(rows=st.integers(1, 9), width=st.integers(1, 7), data=st.data())
def test_any_tiling_gives_the_whole(
    rows: int, width: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    array = np.random.default_rng([rows, width]).standard_normal((rows, width)).astype("<f4")
    file = tmp_path_factory.mktemp("tile") / "m.safetensors"
    write(file, {"w": entry("F32", [rows, width], 0, array.nbytes)}, array.tobytes())
    tensor = read_header(file)["w"]
    cut = data.draw(st.integers(0, rows))
    joined = np.concatenate([tensor.read_rows(0, cut), tensor.read_rows(cut, rows)])
    np.testing.assert_array_equal(joined, array)


def test_reading_rows_touches_no_others(tmp_path: Path) -> None:
    """A tensor that ends beyond the file can be read up to there: nothing else is mapped in."""
    tensor = StoredTensor(tmp_path / "sparse", "w", "F32", (1 << 20, 256), 0)
    with tensor.file.open("wb") as stream:
        stream.truncate(1 << 30)
    assert tensor.read_rows(1 << 19, (1 << 19) + 2).shape == (2, 256)
    assert tensor.file.stat().st_blocks == 0


def test_scalars_and_integers(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "scalar": entry("F32", [], 0, 4),
        "ids": entry("I64", [1], 4, 12),
    }
    file = write(tmp_path / "m.safetensors", header, np.float32(2.5).tobytes() + bytes(8))
    found = read_header(file)
    assert set(found) == {"scalar"}
    assert found["scalar"].read_rows(0, 1).ravel() == 2.5


BROKEN = {
    "needs 48 bytes, the header gives it 40": {"w": entry("F32", [3, 4], 0, 40)},
    "truncated: the tensor ends at byte": {"w": entry("F32", [3, 4], 96, 144)},
    "tensors of type F8_E4M3 are not supported": {"w": entry("F8_E4M3", [4], 0, 4)},
    "follows a hole: it begins at byte": {"w": entry("F32", [2], 8, 16)},
    "overlaps the one before: it begins at byte": {
        "a": entry("F32", [8], 0, 32),
        "w": entry("F32", [8], 16, 48),
    },
}
MALFORMED: list[Any] = [
    {"dtype": "F32", "shape": [1]},
    {**entry("F32", [1], 0, 4), "dtype": 3},
    {**entry("F32", [1], 0, 4), "dtype": ["F32"]},
    {**entry("F32", [1], 0, 4), "shape": "1"},
    {**entry("F32", [1], 0, 4), "shape": [True]},
    {**entry("F32", [1], 0, 4), "shape": [1.0]},
    {**entry("F32", [1], 0, 4), "shape": [1] * 1_000_000},
    {**entry("F32", [1], 0, 4), "data_offsets": [0, 4, 8]},
    {**entry("F32", [1], 0, 4), "data_offsets": ["0", "4"]},
    entry("F32", [-3], 12, 0),
    entry("F32", [1 << 64, 0], 0, 0),
    [1],
    None,
]


def refused(file: Path, message: str) -> str:
    with pytest.raises(InputError, match=message) as caught:
        read_header(file)
    assert caught.value.hint
    return caught.value.where


@pytest.mark.parametrize("message", BROKEN)
def test_broken_entries_name_file_and_tensor(message: str, tmp_path: Path) -> None:
    file = write(tmp_path / "bad.safetensors", BROKEN[message], bytes(48))
    assert refused(file, message) == f"{file}: w"


@pytest.mark.parametrize("index", range(len(MALFORMED)))
def test_malformed_entries_name_file_and_tensor(index: int, tmp_path: Path) -> None:
    file = write(tmp_path / "bad.safetensors", {"w": MALFORMED[index]}, bytes(4))
    assert refused(file, "malformed entry in the safetensors header") == f"{file}: w"


def test_sizes_that_overflow_64_bits_are_no_small_ones(tmp_path: Path) -> None:
    file = write(tmp_path / "m.safetensors", {"w": entry("F32", [1 << 32, 1 << 32], 0, 0)})
    refused(file, "needs 73786976294838206464 bytes, the header gives it 0")


@pytest.mark.parametrize("metadata", [{"format": 3}, ["pt"], "pt", None])
def test_metadata_maps_texts_to_texts(metadata: Any, tmp_path: Path) -> None:
    header = {"__metadata__": metadata, "w": entry("F32", [1], 0, 4)}
    file = write(tmp_path / "m.safetensors", header, bytes(4))
    assert refused(file, "it does not map texts to texts") == f"{file}: __metadata__"


def test_bytes_behind_the_last_tensor_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "m.safetensors", {"w": entry("F32", [1], 0, 4)}, bytes(7))
    assert refused(file, "3 bytes follow the last tensor") == str(file)


def test_a_name_must_not_be_there_twice(tmp_path: Path) -> None:
    one = json.dumps(entry("F32", [1], 0, 4))
    text = f'{{"w": {one}, "w": {one}}}'.encode()
    file = tmp_path / "m.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    assert refused(file, "an object has the key 'w' twice") == str(file)


def _numbers(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most)


@given(
    entries=st.lists(
        st.tuples(
            st.sampled_from(["F32", "F16", "I8"]),
            st.lists(_numbers(3), max_size=2),
            _numbers(24),
            _numbers(24),
        ),
        max_size=3,
    ),
    sound=st.booleans(),
    tail=st.sampled_from([0, 0, 0, 1]),
)
def test_the_library_and_the_reader_agree(
    entries: list[tuple[str, list[int], int, int]],
    sound: bool,
    tail: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """What the format's own library refuses, and nothing else."""
    sizes = {"F32": 4, "F16": 2, "I8": 1}
    header, position = {}, 0
    for index, (dtype, shape, begin, end) in enumerate(entries):
        length = sizes[dtype] * int(np.prod(shape))
        if sound:
            begin, end = position, position + length
        header[f"t{index}"] = entry(dtype, shape, begin, end)
        position = max(position, end)
    content = write(
        tmp_path_factory.mktemp("any") / "m.safetensors", header, bytes(position + tail)
    )
    try:
        safetensors.deserialize(content.read_bytes())
    except safetensors.SafetensorError:
        with pytest.raises(InputError):
            read_header(content)
    else:
        assert set(read_header(content)) == {n for n, e in header.items() if e["dtype"] != "I8"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated or not a safetensors file: 0 bytes"),
        (b"\x10\0\0\0\0\0\0\0{}", "truncated or not a safetensors file: 10 bytes, header of 16"),
        (b"\xff" * 32, "truncated or not a safetensors file"),
        (b"\x03\0\0\0\0\0\0\0{x}", "header is not usable as JSON"),
        (b"\xa0\x86\x01\0\0\0\0\0" + b"[" * 100_000, "not usable as JSON: it is nested more"),
        (b'\x19\0\0\0\0\0\0\0{"w":{"shape":[Infinity]}}', "it holds Infinity"),
        (b"\x02\0\0\0\0\0\0\0[]", "header is not an object"),
    ],
)
def test_broken_files_are_named(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.safetensors"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_header(file)
    assert caught.value.where == str(file)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_header(tmp_path / "none.safetensors")


def test_same_content_compares_numbers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    values = torch.randn(5, 3)
    other = values.clone()
    other[4, 2] += 1
    tensors = {"a": values, "b": values.clone(), "c": other, "d": torch.randn(5, 4)}
    save_file(tensors, tmp_path / "m.safetensors")
    found = read_header(tmp_path / "m.safetensors")
    assert same_content(found["a"], found["b"])
    assert not same_content(found["a"], found["c"])
    assert not same_content(found["a"], found["d"])
