"""bitsandbytes: 8 bits by rows (LLM.int8), or 4 bits by blocks of the flat tensor (NF4, FP4).

| bits | tensors | weight |
|---|---|---|
| 8 | ``weight`` i8 [N, K], ``SCB`` f32 [N] | code * SCB / 127 |
| 4 | ``weight`` u8 [N*K/2, 1], high nibble first, and ``weight.*`` | map[code] * absmax |

``quant_map`` f32 [16] has the values of the codes, ``absmax`` a number for each ``blocksize`` of
them; as u8 it is quantized itself: ``nested_quant_map[absmax] * nested_absmax[i / 256] + offset``.
``quant_state.bitsandbytes__nf4`` is a JSON text with shape, block sizes and offset.
Source: bitsandbytes, ``functional.py`` (QuantState).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.importer.conversion.tensor import Float32, Tensor
from optc.importer.quantized.parts import Parts, numbers, weights
from optc.importer.quantized.tensors import DecodedTensor, GridTensor
from optc.importer.safetensors import StoredTensor
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile
from optc.system.safe_json import JSONError, parse_json

_STATES = ("quant_state.bitsandbytes__nf4", "quant_state.bitsandbytes__fp4")
_FOUR = ("absmax", "quant_map", "nested_absmax", "nested_quant_map", *_STATES)
_ENDS = {
    ".weight": ".weight",
    ".SCB": ".weight",
    ".weight_format": ".weight",
    **{f".weight.{end}": ".weight" for end in _FOUR},
}


def bitsandbytes_weights(
    tensors: Mapping[str, StoredTensor], settings: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The weights of a checkpoint of bitsandbytes.

    Raises:
        InputError: Tensors are missing, or do not fit.
    """
    found = dict(tensors)
    made: dict[str, Tensor] = {}
    for key, make in (("SCB", _eight), ("weight.absmax", _four)):
        every = weights(found, _ENDS, key, make)
        made |= {name: one for name, one in every.items() if not isinstance(one, StoredTensor)}
        used = {leaf.name for one in made.values() for leaf in one.leaves}
        found = {name: one for name, one in found.items() if name not in used}
    floats = {n: one for n, one in found.items() if one.dtype in ("F64", "F32", "F16", "BF16")}
    return {**floats, **made}


def _eight(parts: Parts) -> Tensor:
    codes = parts.one("weight", "I8", axes=2)
    n, k = codes.shape
    scales = numbers(parts.shaped("SCB", (n,), "F32", "F16")) / np.float32(127)

    def read(start: int, stop: int) -> QuantizedTile:
        return QuantizedTile(codes.read_stored(((start, stop), (0, k))), scales[start:stop], None)

    rows = QuantizedRows(read, n, k, 8, 0, True, parts.name)
    return GridTensor("bitsandbytes int8", rows, parts.leaves)


def _four(parts: Parts) -> Tensor:
    kind = next((one for one in _STATES if f"weight.{one}" in parts.found), None)
    if kind is None:
        raise InputError("quant_state is missing", where=parts.name, hint="is it damaged?")
    shape, block, nested_block, offset = _state(parts.one(f"weight.{kind}", "U8", axes=1))
    n, k = shape
    codes = parts.shaped("weight", (n * k // 2, 1), "U8")
    levels = numbers(parts.shaped("weight.quant_map", (16,), "F32"))
    largest = _largest(parts, n * k // block, nested_block, offset)

    def decode(start: int, stop: int) -> Float32:
        pairs = codes.read_stored(((start * k // 2, stop * k // 2), (0, 1))).reshape(-1)
        both = np.stack([pairs >> 4, pairs & 15], axis=-1).reshape(-1)
        numbers_of = np.arange(start * k, stop * k) // block
        return (levels[both] * largest[numbers_of]).reshape(stop - start, k)

    label = f"bitsandbytes {kind.rpartition('_')[2]}"
    return DecodedTensor(parts.name, label, (n, k), decode, parts.leaves)


def _largest(
    parts: Parts, blocks: int, nested_block: int, offset: float
) -> npt.NDArray[np.float32]:
    """The scale of each block."""
    stored = parts.shaped("weight.absmax", (blocks,), "U8", "F32")
    if stored.dtype == "F32":
        return numbers(stored)
    count = -(-blocks // nested_block)
    scales = numbers(parts.shaped("weight.nested_absmax", (count,), "F32"))
    levels = numbers(parts.shaped("weight.nested_quant_map", (256,), "F32"))
    wide = scales[np.arange(blocks) // nested_block]
    return levels[stored.read_stored()] * wide + np.float32(offset)


def _state(stored: StoredTensor) -> tuple[tuple[int, int], int, int, float]:
    """Shape, size of a block, blocks that share a nested scale, and the offset of these."""
    try:
        state = parse_json(stored.read_stored().tobytes())
    except JSONError as error:
        raise InputError(f"it is not JSON: {error}", where=stored.where) from error
    found = state if isinstance(state, dict) else {}
    shape, block = found.get("shape"), found.get("blocksize")
    nested, offset = found.get("nested_blocksize", 256), found.get("nested_offset", 0.0)
    sizes = [*shape, block, nested] if isinstance(shape, list) else []
    if len(sizes) != 4 or not all(type(size) is int and size > 0 for size in sizes):
        raise InputError("it does not state shape and blocksize", where=stored.where)
    if not isinstance(offset, int | float) or math.prod(sizes[:2]) % (2 * sizes[2]):
        raise InputError("its blocks do not fit its shape", where=stored.where)
    return (sizes[0], sizes[1]), sizes[2], sizes[3], float(offset)
