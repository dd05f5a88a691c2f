"""Writes an artifact as a folder in the format pack-quantized of compressed-tensors.

Weights of linear layers keep their integers and scales. Integer scales of groups have no place
there: such weights become the int8 per channel that engines compute with them. Embeddings, which
readers take in floats only, and routers are dequantized. Experts lie apart, under the names of
published checkpoints. For packing see
`optc.importer.quantized.compressed`, which reads it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch

from optc.artifact.artifact import Artifact
from optc.compiling.export.experts import check_experts, experts_apart, published
from optc.compiling.export.parameters import Weight, shape_of
from optc.compiling.export.safetensors_file import Array, Described, write_safetensors
from optc.compiling.export.source_class import SourceClass
from optc.compiling.export.tokenizer_folder import write_tokenizer
from optc.compiling.export.written import Written
from optc.ir.quantized_rows import QuantizedRows
from optc.ir.weights import TILE_ELEMENTS, LazyWeight

METHOD, FORMAT = "compressed-tensors", "pack-quantized"
_WEIGHT = ".weight"
#: In names of experts that lie apart.
_EXPERT = ".experts."


class _Grid(NamedTuple):
    """The quantization of a group of ``config_groups``."""

    bits: int
    group_size: int
    symmetric: bool

    @classmethod
    def of(cls, rows: QuantizedRows) -> _Grid:
        return cls(rows.bits, rows.group_size, rows.symmetric)

    def to_json(self) -> dict[str, Any]:
        return {
            "num_bits": self.bits,
            "type": "int",
            "symmetric": self.symmetric,
            "strategy": "group" if self.group_size else "channel",
            "group_size": self.group_size or None,
            "dynamic": False,
        }

    @property
    def label(self) -> str:
        groups = f"groups of {self.group_size}" if self.group_size else "per channel"
        return f"int{self.bits} {groups}{'' if self.symmetric else ' asymmetric'}"


def write_compressed(
    folder: Path, artifact: Artifact, model: SourceClass, weights: Mapping[str, Weight]
) -> Written:
    """Write ``weights``, config and tokenizer into ``folder``, which is there and empty.

    Raises:
        UnsupportedError: Experts of this type of model have no names in the format.
        OSError: A file cannot be written.
    """
    kind, ours = model.config.model_type, model.origins.shapes
    check_experts(kind, ours)
    linear = {published(name, kind) for name in _of_modules(model, torch.nn.Linear)}
    tables = _of_modules(model, torch.nn.Embedding)
    matrices = {published(n, kind) for n, shape in ours.items() if len(shape) == 2} - tables
    grids: dict[str, QuantizedRows] = {}
    floats: dict[str, Weight] = {}
    for name, weight in experts_apart(weights, ours, kind):
        layer = name in linear or _EXPERT in name
        if isinstance(weight, QuantizedRows) and layer and not weight.float_zeros:
            grids[name] = weight.as_int8()
        else:
            floats[name] = weight
            if _EXPERT in name:
                matrices.add(name)
    described = {name: _described(weight) for name, weight in floats.items()}
    for name, rows in grids.items():
        described |= {_part(name, end): one for end, one in _packed_parts(rows).items()}
    write_safetensors(folder / "model.safetensors", described, _contents(floats, grids))
    _write_config(folder, model, grids, matrices - grids.keys())
    write_tokenizer(folder, artifact)
    kinds = Counter(_Grid.of(rows).label for rows in grids.values())
    kinds.update(f"{one.dtype.lower()}" for name, one in described.items() if name in floats)
    return Written(dict(kinds), {})


def _of_modules(model: SourceClass, kind: type[torch.nn.Module]) -> set[str]:
    modules = model.model.named_modules()
    return {f"{name}{_WEIGHT}" for name, module in modules if isinstance(module, kind)}


def _part(name: str, end: str) -> str:
    return f"{name.removesuffix(_WEIGHT)}.{end}"


def _described(weight: Weight) -> Described:
    narrow = isinstance(weight, LazyWeight) and weight.dtype == ir.DataType.BFLOAT16
    return Described("BF16" if narrow else "F32", shape_of(weight))


def _packed_parts(rows: QuantizedRows) -> dict[str, Described]:
    groups = rows.columns // rows.group_size if rows.group_size else 1
    words = -(-rows.columns * rows.bits // 32)
    parts = {
        "weight_packed": Described("I32", (rows.rows, words)),
        "weight_scale": Described("F16" if rows.group_size else "F32", (rows.rows, groups)),
        "weight_shape": Described("I64", (2,)),
    }
    if not rows.symmetric:
        parts["weight_zero_point"] = Described("I32", (-(-rows.rows * rows.bits // 32), groups))
    return parts


def _contents(
    floats: Mapping[str, Weight], grids: Mapping[str, QuantizedRows]
) -> Iterator[tuple[str, Array]]:
    for name, weight in floats.items():
        count, *inner = shape_of(weight)
        for start, stop in _ranges(count, math.prod(inner)):
            yield name, _floats(weight, start, stop)
    for name, rows in grids.items():
        yield _part(name, "weight_shape"), np.array([rows.rows, rows.columns], np.int64)
        yield from _packed(name, rows)


def _floats(weight: Weight, start: int, stop: int) -> Array:
    if isinstance(weight, QuantizedRows):
        return weight.floats(start, stop)
    return weight.read_rows(start, stop)


def _packed(name: str, rows: QuantizedRows) -> Iterator[tuple[str, Array]]:
    kind = np.float16 if rows.group_size else np.float32
    zeros = []
    for start, stop in _ranges(rows.rows, rows.columns):
        tile = rows.read(start, stop)
        codes = tile.values
        if rows.symmetric:
            codes = (codes.astype(np.int16) + (1 << (rows.bits - 1))).astype(np.uint8)
        yield _part(name, "weight_packed"), _words(codes, rows.bits)
        yield _part(name, "weight_scale"), tile.scales.astype(kind)
        if tile.zero_points is not None:
            zeros.append(tile.zero_points)
    if zeros:  # packed along the rows
        yield _part(name, "weight_zero_point"), _words(np.concatenate(zeros).T, rows.bits).T


def _words(codes: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.int32]:
    """Rows of values packed into words, the first in the lowest bits."""
    each = 32 // bits
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % each)))
    fields = padded.reshape(len(padded), -1, each).astype(np.uint32)
    shifted = fields << (np.arange(each, dtype=np.uint32) * np.uint32(bits))
    return np.bitwise_or.reduce(shifted, axis=2).view(np.int32)


def _ranges(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    step = max(1, TILE_ELEMENTS // max(columns, 1))
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def _write_config(
    folder: Path, model: SourceClass, grids: Mapping[str, QuantizedRows], plain: set[str]
) -> None:
    by_grid: dict[_Grid, list[str]] = {}
    for name, rows in grids.items():
        by_grid.setdefault(_Grid.of(rows), []).append(name.removesuffix(_WEIGHT))
    ignored = sorted(name.removesuffix(_WEIGHT) for name in plain)
    groups = {
        f"group_{index}": {
            "targets": ["Linear"] if len(by_grid) == 1 else sorted(names),
            "weights": grid.to_json(),
            "input_activations": None,
            "output_activations": None,
            "format": FORMAT,
        }
        for index, (grid, names) in enumerate(by_grid.items())
    }
    # scales are kept as they are where the model is read in float32
    config = {k: v for k, v in model.stated.items() if k != "torch_dtype"} | {"dtype": "float32"}
    if groups:
        config["quantization_config"] = {
            "quant_method": METHOD,
            "format": FORMAT,
            "quantization_status": "compressed",
            "config_groups": groups,
            "ignore": ignored,
        }
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
