"""Checkpoints: one safetensors file, or two with an index."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np

from optc.importer.checkpoint import checkpoint_files, read_checkpoint
from tests.fuzz.edits import edit_json, edit_safetensors, header_length
from tests.fuzz.form import FileFormat, Materials, expect, read_files

_INDEX = "model.safetensors.index.json"
_ITEM = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "BOOL": 1}


class Safetensors(FileFormat):
    """Everything up to the first and last rows of every tensor, which are read."""

    name = "safetensors"
    needs = frozenset({"model"})

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        single = safetensors({"a": ("F32", [3, 4]), "b": ("F64", [2]), "c": ("F16", [5, 1, 2])})
        other = safetensors({"d": ("BF16", [4, 4]), "e": ("I64", [2]), "f": ("F32", [])})
        weight_map = dict.fromkeys("abc", "m-1.safetensors") | {"d": "m-2.safetensors"}
        index = json.dumps({"metadata": {"total_size": 144}, "weight_map": weight_map}).encode()
        return [
            read_files(materials.model, "model.safetensors"),
            {"model.safetensors": single},
            {"model.safetensors": other},
            {"m-1.safetensors": single, "m-2.safetensors": other, _INDEX: index},
        ]

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        edit = edit_json if name == _INDEX else edit_safetensors
        return edit(random, data)

    def check(self, folder: Path) -> None:
        for tensor in read_checkpoint(checkpoint_files(folder)).values():
            rows = tensor.shape[0] if tensor.shape else 0
            for start, stop in ((0, min(rows, 2)), (max(rows - 2, 0), rows)):
                read = tensor.read_rows(start, stop) if tensor.shape else np.empty((0,))
                expect(len(read) == stop - start, "another number of rows", tensor.name)


def safetensors(tensors: dict[str, tuple[str, list[int]]]) -> bytes:
    """A file of these types and shapes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + _ITEM[dtype] * int(np.prod(shape, dtype=np.int64))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    return header_length(len(text)) + text + bytes(range(256))[:end].ljust(end, b"\x01")
