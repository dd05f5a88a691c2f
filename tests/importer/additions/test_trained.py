"""Folders that training wrote: what is read of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from optc.errors import InputError
from optc.importer.additions.trained import digest_trained, read_trained

GRID = {"bits": 4, "group_size": 2, "symmetric": False, "integer_scales": False}


def write(folder: Path, *, without: str = "", kind: str = "qat") -> Path:
    folder.mkdir(exist_ok=True)
    save_file({"n": np.ones(3, np.float32)}, folder / "model.safetensors")
    parts = {
        "w:values": np.ones((2, 4), np.uint8),
        "w:scales": np.ones((2, 2), np.float32),
        "w:zero_points": np.zeros((2, 2), np.uint8),
    }
    parts.pop(f"w:{without}", None)
    save_file(parts, folder / "codes.safetensors")
    state = {"kind": kind, "tensors": ["n"], "rounded": {"w": GRID}}
    (folder / "training.json").write_text(json.dumps(state))
    return folder


def test_tensors_and_rounded_weights(tmp_path: Path) -> None:
    found = read_trained(write(tmp_path / "t"))
    assert found.tensors["n"].read_rows(0, 3).tolist() == [1, 1, 1]
    one = found.rounded["w"]
    assert (one.bits, one.group_size, one.symmetric, one.integer_scales) == (4, 2, False, False)
    assert one.tile.values.shape == (2, 4)
    assert one.tile.group_scales is None


def test_the_digest_is_of_all_files_wherever_they_are(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    assert digest_trained(first) == digest_trained(second)
    save_file({"w:values": np.zeros((2, 4), np.uint8)}, second / "codes.safetensors")
    assert digest_trained(first) != digest_trained(second)


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no training\.json \(give a folder that optc distill"):
        read_trained(tmp_path)
    with pytest.raises(InputError, match="is of no training"):
        read_trained(write(tmp_path / "t", kind="other"))
    with pytest.raises(InputError, match="w is not complete: 'scales'"):
        read_trained(write(tmp_path / "t", without="scales"))
    folder = write(tmp_path / "t")
    save_file({"m": np.ones(3, np.float32)}, folder / "model.safetensors")
    with pytest.raises(InputError, match="n is missing"):
        read_trained(folder)
    write(folder)
    (folder / "codes.safetensors").write_bytes(b"no")
    with pytest.raises(InputError, match=r"codes\.safetensors: cannot be read"):
        read_trained(folder)
    (folder / "codes.safetensors").unlink()
    with pytest.raises(InputError, match=r"no codes\.safetensors"):
        read_trained(folder)
