"""A folder that ``optc distill`` or ``optc qat`` wrote: its tensors, and its digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from optc.errors import InputError
from optc.importer.json_file import read_object
from optc.importer.safetensors import StoredTensor, read_header
from optc.importer.source_digest import digest_files
from optc.ir.quantized_rows import QuantizedTile

STATE_FILE = "training.json"
WEIGHTS_FILE = "model.safetensors"
CODES_FILE = "codes.safetensors"
#: All that a training may leave.
FILES = (STATE_FILE, WEIGHTS_FILE, CODES_FILE)
HINT = "give a folder that optc distill or optc qat wrote"
#: Parts of a tile by the suffix of their names, and the types that they may have.
PARTS = {
    "values": (np.int8, np.uint8),
    "scales": (np.float32,),
    "zero_points": (np.uint8,),
    "group_scales": (np.uint8,),
}


@dataclass(frozen=True)
class RoundedTensor:
    """A weight as training rounded it.

    Attributes:
        bits, group_size, symmetric, integer_scales: Its grid, as of `QuantizedRows`.
        tile: All its rows.
    """

    bits: int
    group_size: int
    symmetric: bool
    integer_scales: bool
    tile: QuantizedTile


@dataclass(frozen=True)
class TrainedFolder:
    """The result of a training.

    Attributes:
        kind: ``distill`` or ``qat``.
        tensors: Float tensors by name, by rows.
        rounded: Rounded weights of linear layers by name.
        stated: All that training.json says.
    """

    kind: str
    tensors: Mapping[str, StoredTensor]
    rounded: Mapping[str, RoundedTensor]
    stated: Mapping[str, Any]


def digest_trained(folder: Path) -> str:
    """sha256 (hex) over the files that a compile reads, wherever the folder lies.

    Raises:
        InputError: A file is missing, or the weights are damaged or not finite.
    """
    return digest_files(_files(folder), read_header(folder / WEIGHTS_FILE).values())


def read_trained(folder: Path) -> TrainedFolder:
    """Read the result of a training in ``folder``.

    Raises:
        InputError: A file is missing or damaged, or does not hold what training.json says.
    """
    files = _files(folder)
    stated = read_object(files[STATE_FILE], hint=HINT)
    where = str(files[STATE_FILE])
    kind, names, grids = (stated.get(key) for key in ("kind", "tensors", "rounded"))
    if kind not in ("distill", "qat") or not isinstance(names, list) or not isinstance(grids, dict):
        raise InputError("is of no training", where=where, hint=HINT)
    header = read_header(files[WEIGHTS_FILE])
    missing = [name for name in names if name not in header]
    if missing:
        raise InputError(f"{missing[0]} is missing", where=str(files[WEIGHTS_FILE]), hint=HINT)
    rounded = _read_rounded(files.get(CODES_FILE), grids) if grids else {}
    return TrainedFolder(kind, {name: header[name] for name in names}, rounded, stated)


def _files(folder: Path) -> dict[str, Path]:
    wanted = [STATE_FILE, WEIGHTS_FILE]
    for name in wanted:
        if not (folder / name).is_file():
            raise InputError(f"no {name}", where=str(folder), hint=HINT)
    found = {name: folder / name for name in wanted}
    codes = folder / CODES_FILE
    return found | ({CODES_FILE: codes} if codes.is_file() else {})


def _read_rounded(file: Path | None, grids: Mapping[str, Any]) -> dict[str, RoundedTensor]:
    if file is None:
        raise InputError(f"no {CODES_FILE}", where="trained weights", hint=HINT)
    try:
        with safe_open(file, framework="numpy") as opened:
            present = set(opened.keys())
            parts = {
                name: {
                    part: opened.get_tensor(f"{name}:{part}")
                    for part in PARTS
                    if f"{name}:{part}" in present
                }
                for name in grids
            }
    except (SafetensorError, OSError) as error:
        raise InputError(f"cannot be read: {error}", where=str(file), hint=HINT) from error
    return {name: _rounded(name, grids[name], parts[name], file) for name in grids}


def _rounded(name: str, grid: Any, parts: dict[str, Any], file: Path) -> RoundedTensor:
    try:
        bits, group_size, symmetric, integer = (
            grid[key] for key in ("bits", "group_size", "symmetric", "integer_scales")
        )
        for part, array in parts.items():
            if array.dtype not in PARTS[part]:
                raise TypeError(part)
        tile = QuantizedTile(
            parts["values"], parts["scales"], parts.get("zero_points"), parts.get("group_scales")
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"{name} is not complete: {error}", where=str(file), hint=HINT) from error
    return RoundedTensor(int(bits), int(group_size), bool(symmetric), bool(integer), tile)
