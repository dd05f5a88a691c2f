"""Weights in floats of 8 or 4 bits: fp8 by blocks, mxfp4, ModelOpt's FP8 and NVFP4.

| method | tensors | weight |
|---|---|---|
| fp8 | ``weight`` E4M3 [N, K], ``weight_scale_inv`` [N/b, K/b] or one number | code * scale_inv |
| mxfp4 | ``*_blocks`` u8 [E, N, K/32, 16], ``*_scales`` u8 [E, N, K/32] | E2M1 * 2^(s - 127) |
| modelopt FP8 | ``weight`` E4M3 [N, K], ``weight_scale`` one number | code * scale |
| modelopt NVFP4 | ``weight`` u8 [N, K/2], ``weight_scale`` E4M3 [N, K/16] | E2M1 * s * s2 |

s2 is ``weight_scale_2``, one number. Blocks of fp8 at the edges are cut off. The parameters of
mxfp4's experts are [E, K, N].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from optc.errors import InputError, UnsupportedError
from optc.importer.conversion.reordered import Swapped
from optc.importer.conversion.tensor import Float32, Tensor
from optc.importer.quantized.decoding import by_group, e2m1, e4m3, e8m0
from optc.importer.quantized.parts import Parts, numbers, scalar, weights
from optc.importer.quantized.tensors import DecodedTensor
from optc.importer.safetensors import StoredTensor

_WEIGHT = {".weight": ".weight"}
_GROUP = 32


def fp8_weights(
    tensors: Mapping[str, StoredTensor], settings: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The weights of a checkpoint of ``quant_method`` fp8."""
    block = settings.get("weight_block_size")
    if block is not None and not _is_block(block):
        raise InputError(
            f"weight_block_size is {block!r}, not two numbers",
            where="config.json: quantization_config",
        )
    ends = {**_WEIGHT, ".weight_scale_inv": ".weight", ".weight_scale": ".weight"}
    return _eight_bits(tensors, ends, None if block is None else (block[0], block[1]))


def modelopt_weights(
    tensors: Mapping[str, StoredTensor], settings: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The weights of a checkpoint of ModelOpt.

    Raises:
        UnsupportedError: In another algorithm than FP8 and NVFP4.
    """
    algorithm = str(settings.get("quant_algo", "unknown"))
    ends = {**_WEIGHT, ".weight_scale_2": ".weight", ".weight_scale": ".weight"}
    if algorithm == "FP8":
        return _eight_bits(tensors, ends, None)
    if algorithm == "NVFP4":
        found = weights(_quantized(tensors, "U8"), ends, "weight", _nvfp4)
        return {**_floats(tensors, found), **found}
    raise UnsupportedError(
        f"ModelOpt's {algorithm}",
        where="config.json: quantization_config",
        hint="optc reads FP8 and NVFP4",
    )


def mxfp4_weights(
    tensors: Mapping[str, StoredTensor], settings: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The weights of a checkpoint of ``quant_method`` mxfp4."""
    return weights(tensors, {"_blocks": "", "_scales": ""}, "blocks", _mxfp4)


def eight_bits(parts: Parts, block: tuple[int, int] | None, label: str) -> Tensor:
    """A weight in E4M3 with scales of blocks, of channels or of the whole.

    Args:
        parts: ``weight``, and ``weight_scale_inv`` or ``weight_scale``.
        block: Rows and columns that share a scale; None where the scales' shape says it.
        label: For reports.
    """
    codes = parts.one("weight", "F8_E4M3", axes=2)
    end = "weight_scale_inv" if "weight_scale_inv" in parts.found else "weight_scale"
    stored = parts.one(end)
    n, k = codes.shape
    scales = numbers(stored)
    if scales.size == 1:
        scales, size = scales.reshape(1, 1), (n, k)
    elif scales.shape in ((n,), (n, 1)):
        scales, size = scales.reshape(n, 1), (1, k)
    else:
        size = block or (-(-n // scales.shape[0]), -(-k // scales.shape[-1]))
        shape = (-(-n // size[0]), -(-k // size[1]))
        if scales.shape != shape:
            raise InputError(
                f"the tensor has shape {list(scales.shape)}, not {list(shape)}",
                where=stored.where,
                hint="is weight_block_size in config.json right?",
            )

    def decode(start: int, stop: int) -> Float32:
        rows = scales[np.arange(start, stop) // size[0]]
        wide = np.repeat(rows, size[1], axis=1)[:, :k]
        return e4m3(codes.read_stored(((start, stop), (0, k)))) * wide

    return DecodedTensor(parts.name, label, (n, k), decode, parts.leaves)


def _eight_bits(
    tensors: Mapping[str, StoredTensor], ends: Mapping[str, str], block: tuple[int, int] | None
) -> dict[str, Tensor]:
    found = weights(
        _quantized(tensors, "F8_E4M3"), ends, "weight", lambda p: eight_bits(p, block, "fp8")
    )
    return {**_floats(tensors, found), **found}


def _quantized(tensors: Mapping[str, StoredTensor], kind: str) -> dict[str, StoredTensor]:
    """Without weights of other types, which are not quantized, and what stands beside them."""
    other = {
        name.removesuffix("weight")
        for name, tensor in tensors.items()
        if name.endswith(".weight") and tensor.dtype != kind
    }
    return {
        name: tensor
        for name, tensor in tensors.items()
        if f"{name.rpartition('.')[0]}." not in other
    }


def _floats(tensors: Mapping[str, StoredTensor], found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of floats that are in no weight."""
    used = {leaf.name for one in found.values() for leaf in one.leaves}
    return {
        name: tensor
        for name, tensor in tensors.items()
        if name not in used and tensor.dtype in ("F64", "F32", "F16", "BF16")
    }


def _nvfp4(parts: Parts) -> Tensor:
    factor = scalar(parts.one("weight_scale_2"))
    return nvfp4(parts, "weight", lambda scales: scales * factor)


def nvfp4(parts: Parts, end: str, of_whole: Callable[[Float32], Float32]) -> Tensor:
    """A weight in E2M1 with E4M3 scales of 16 columns, and what the whole does to these."""
    codes = parts.one(end, "U8", axes=2)
    n, k = codes.shape[0], 2 * codes.shape[1]
    scales = parts.shaped("weight_scale", (n, k // 16), "F8_E4M3")

    def decode(start: int, stop: int) -> Float32:
        rows = (start, stop)
        values = e2m1(codes.read_stored((rows, (0, k // 2))))
        return by_group(values, of_whole(numbers(scales, (rows, (0, k // 16)))))

    return DecodedTensor(parts.name, "nvfp4", (n, k), decode, parts.leaves)


def _mxfp4(parts: Parts) -> Tensor:
    blocks = parts.one("blocks", "U8", axes=4)
    experts, n, groups, half = blocks.shape
    scales = parts.shaped("scales", (experts, n, groups), "U8")
    k = groups * half * 2
    if half * 2 != _GROUP:
        raise InputError(f"blocks of {2 * half} values, not {_GROUP}", where=blocks.where)

    def decode(start: int, stop: int) -> Float32:
        found = []
        for expert in range(start // n, -(-stop // n)):
            rows = (max(start - expert * n, 0), min(stop - expert * n, n))
            one = (expert, expert + 1)
            box = (one, rows, (0, groups))
            values = e2m1(blocks.read_stored((*box, (0, half)))[0])
            count = rows[1] - rows[0]
            found.append(by_group(values.reshape(count, k), e8m0(scales.read_stored(box)[0])))
        return np.concatenate(found)

    tensor = DecodedTensor(parts.name, "mxfp4", (experts, n, k), decode, parts.leaves)
    return Swapped(parts.name, tensor, (1, 2))


def _is_block(block: Any) -> bool:
    return (
        isinstance(block, list)
        and len(block) == 2
        and all(type(size) is int and size > 0 for size in block)
    )
