"""Lengths in the header of a GGUF file may not lead out of it."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from optc.errors import InputError
from optc.importer.gguf.structure import check_structure


def text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def header(tensors: int, settings: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, settings)


def setting(kind: int, value: bytes) -> bytes:
    return text(b"key") + struct.pack("<I", kind) + value


def listed(kind: int, count: int, values: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + values


TEXT, LIST, UINT8 = 8, 9, 0
LONG = 1 << 60
DAMAGED = {
    "empty": (b"", "it is empty"),
    "magic": (b"GGML" + header(0, 0)[4:], "begins with b'GGML'"),
    "version": (header(0, 0, version=1), "and version 1"),
    "truncated": (header(0, 0)[:10], "needs 8 more than it has"),
    "settings": (header(0, LONG), "needs 8 more than it has"),
    "tensors": (header(LONG, 0), "needs 8 more than it has"),
    "key": (header(0, 1) + struct.pack("<Q", LONG), f"needs {LONG} more"),
    "bytes": (header(0, 1) + setting(LIST, listed(UINT8, LONG, b"")), f"needs {LONG} more"),
    "texts": (header(0, 1) + setting(LIST, listed(TEXT, LONG, b"")), f"needs {8 * LONG} more"),
    "kind": (header(0, 1) + setting(77, b""), "a setting of type 77"),
    "axes": (header(1, 0) + text(b"w") + struct.pack("<I", 9), "a tensor of 9 axes"),
    "elements": (
        header(1, 0) + text(b"w") + struct.pack("<IQQIQ", 2, 1 << 40, 1 << 40, 0, 0),
        "a tensor that no machine holds",
    ),
    "depth": (
        header(0, 1) + setting(LIST, listed(LIST, 1, listed(LIST, 1, listed(LIST, 1, bytes(64))))),
        "a setting of type 9",
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_headers_are_refused_at_once(what: str, tmp_path: Path) -> None:
    content, message = DAMAGED[what]
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    with pytest.raises(InputError, match="not a GGUF file that can be read") as caught:
        check_structure(file)
    assert message in caught.value.message
    assert caught.value.where == str(file)


def test_what_the_package_writes_is_fine(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_block_count(3)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(["a", "bc"])
    writer.add_token_types([1, 2])
    writer.add_add_bos_token(True)
    writer.add_tensor("w", np.ones((3, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    check_structure(tmp_path / "m.gguf")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        check_structure(tmp_path / "m.gguf")
