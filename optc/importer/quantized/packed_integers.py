"""GPTQ and AWQ: integers of 4 or 8 bits in words of 32, by input channel.

K inputs, N outputs, groups of g inputs. Both: w = (q - z) * s, ``scales`` float [K/g, N] and
``qzeros`` i32 [K/g, N*b/32] packed along N.

| | qweight | order in a word | stored zero point |
|---|---|---|---|
| gptq | i32 [K*b/32, N], packed along K | 0 1 2 3 4 5 6 7 | z - 1 (``gptq_v2``: z) |
| awq, version gemm | i32 [K, N*b/32], packed along N | 0 2 4 6 1 3 5 7 | z |

GPTQ with ``desc_act`` orders groups by ``g_idx`` i32 [K]: the group of each input. Sources:
AutoGPTQ, ``qlinear_cuda_old.py``, and AutoAWQ, ``packing_utils.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import InputError, UnsupportedError
from optc.importer.conversion.tensor import Float32, Tensor
from optc.importer.quantized.parts import Parts, numbers, weights
from optc.importer.quantized.settings import whole
from optc.importer.quantized.tensors import DecodedTensor, grid_or_decoded, unpacked
from optc.importer.safetensors import StoredTensor
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile

Codes = npt.NDArray[np.uint8]
_ENDS = {
    ".qweight": ".weight",
    ".qzeros": ".weight",
    ".scales": ".weight",
    ".g_idx": ".weight",
}
_AWQ_ORDER = np.array([0, 4, 1, 5, 2, 6, 3, 7])
_BITS = (2, 4, 8)


def gptq_weights(
    tensors: Mapping[str, StoredTensor], settings: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The weights of a GPTQ checkpoint.

    Raises:
        UnsupportedError: Of 3 bits, whose values lie across words.
        InputError: Tensors are missing, or do not fit.
    """
    bits = _bits(settings, "bits")
    stated = str(settings.get("checkpoint_format", "gptq"))
    offset = 0 if stated == "gptq_v2" else 1
    symmetric = settings.get("sym") is True
    return weights(
        tensors,
        _ENDS,
        "qweight",
        lambda parts: _gptq(parts, bits, offset, symmetric=symmetric),
    )


def awq_weights(
    tensors: Mapping[str, StoredTensor], settings: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The weights of an AWQ checkpoint.

    Raises:
        UnsupportedError: Packed otherwise than by ``gemm``.
        InputError: Tensors are missing, or do not fit.
    """
    version = str(settings.get("version", "gemm")).lower()
    bits = _bits(settings, "bits", "w_bit")
    if version != "gemm" or bits != 4:
        raise UnsupportedError(
            f"AWQ of version {version} with {bits} bits",
            where="config.json: quantization_config",
            hint="optc reads version gemm of 4 bits",
        )
    return weights(tensors, _ENDS, "qweight", _awq)


def _bits(settings: Mapping[str, Any], *keys: str) -> int:
    bits = whole(settings, *keys)
    if bits not in _BITS:
        raise UnsupportedError(
            f"weights of {bits} bits in words of 32",
            where="config.json: quantization_config",
            hint=f"optc reads {', '.join(map(str, _BITS))} bits",
        )
    return bits


def _gptq(parts: Parts, bits: int, offset: int, *, symmetric: bool) -> Tensor:
    words, rows = parts.one("qweight", "I32", axes=2).shape
    columns = words * 32 // bits
    groups = parts.one("scales", axes=2).shape[0]
    codes = parts.one("qweight")

    def read(start: int, stop: int) -> Codes:
        packed = codes.read_stored(((0, words), (start, stop)))
        return unpacked(np.ascontiguousarray(packed.T), bits)

    grid = _Grid(parts, bits, rows, columns, groups, read, offset)
    order = parts.get("g_idx")
    if order is not None:
        index = parts.shaped("g_idx", (columns,), "I32").read_stored().astype(np.int64)
        size = parts.divided(columns, groups, "scales")
        if not np.array_equal(index, np.arange(columns) // size):
            return grid.by_index(index)
    return grid.tensor("gptq", symmetric=symmetric)


def _awq(parts: Parts) -> Tensor:
    columns, words = parts.one("qweight", "I32", axes=2).shape
    groups = parts.one("scales", axes=2).shape[0]
    codes = parts.one("qweight")

    def read(start: int, stop: int) -> Codes:
        low, high = start // 8, -(-stop // 8)
        values = _by_output(codes.read_stored(((0, columns), (low, high))))
        return np.ascontiguousarray(values[:, start - 8 * low : stop - 8 * low].T)

    grid = _Grid(parts, 4, words * 8, columns, groups, read, None)
    return grid.tensor("awq", symmetric=False)


def _by_output(words: npt.NDArray[np.int32]) -> Codes:
    """AWQ's order within a word undone: [..., W] -> [..., 8 W]."""
    values = unpacked(words, 4).reshape(*words.shape, 8)[..., _AWQ_ORDER]
    return values.reshape(*words.shape[:-1], -1)


class _Grid:
    """Values, scales and zero points of one weight.

    Args:
        parts: Its tensors.
        bits: Of a value.
        rows, columns: N and K.
        groups: K/g.
        read: Values [n, K] of some rows.
        offset: What zero points are stored less by; None for AWQ's order.
    """

    def __init__(
        self,
        parts: Parts,
        bits: int,
        rows: int,
        columns: int,
        groups: int,
        read: Callable[[int, int], Codes],
        offset: int | None,
    ) -> None:
        self.parts, self.bits, self.rows, self.columns = parts, bits, rows, columns
        self.groups, self.read, self.offset = groups, read, offset
        self._scales = parts.shaped("scales", (groups, rows), "F16", "BF16", "F32")
        self._zeros = parts.shaped("qzeros", (groups, rows * bits // 32), "I32")
        self._size = parts.divided(columns, groups, "scales")

    def tensor(self, method: str, *, symmetric: bool) -> Tensor:
        """The weight on its grid."""
        wide = 8 if self.bits == 8 else 4
        middle = 1 << (self.bits - 1)

        def read(start: int, stop: int) -> QuantizedTile:
            values, zeros = self.read(start, stop), self.zeros(start, stop)
            scales = self.scales(start, stop)
            if not symmetric:
                self._check(zeros, (1 << wide) - 1)
                return QuantizedTile(values, scales, zeros.astype(np.uint8))
            self._check(zeros, middle, middle)
            signed = values.astype(np.int16) - np.int16(middle)
            return QuantizedTile(signed.astype(np.int8), scales, None)

        rows = QuantizedRows(
            read, self.rows, self.columns, wide, self._size, symmetric, self.parts.name
        )
        return grid_or_decoded(f"{method} int{self.bits}", rows, self.parts.leaves)

    def by_index(self, index: npt.NDArray[np.int64]) -> Tensor:
        """The weight where every input says which group it is in."""
        if index.min() < 0 or index.max() >= self.groups:
            raise InputError(
                f"an input is in group {int(index.max())} of {self.groups}",
                where=self.parts.one("g_idx").where,
                hint="the checkpoint is damaged",
            )

        def decode(start: int, stop: int) -> Float32:
            values = self.read(start, stop).astype(np.float32)
            zeros = self.zeros(start, stop).astype(np.float32)[:, index]
            return (values - zeros) * self.scales(start, stop)[:, index]

        shape = (self.rows, self.columns)
        label = f"gptq int{self.bits} with desc_act"
        return DecodedTensor(self.parts.name, label, shape, decode, self.parts.leaves)

    def scales(self, start: int, stop: int) -> Float32:
        """[n, G]."""
        box = ((0, self.groups), (start, stop))
        return np.ascontiguousarray(numbers(self._scales, box).T)

    def zeros(self, start: int, stop: int) -> npt.NDArray[np.int16]:
        """[n, G], as they are subtracted."""
        each = 32 // self.bits
        low, high = start // each, -(-stop // each)
        packed = self._zeros.read_stored(((0, self.groups), (low, high)))
        values = _by_output(packed) if self.offset is None else unpacked(packed, self.bits)
        wanted = values[:, start - each * low : stop - each * low].T.astype(np.int16)
        return wanted + np.int16(self.offset or 0)

    def _check(self, zeros: npt.NDArray[np.int16], most: int, least: int = 0) -> None:
        if zeros.size and (zeros.min() < least or zeros.max() > most):
            raise InputError(
                f"a zero point is {int(zeros.max())}, beyond {least} to {most}",
                where=self._zeros.where,
                hint="its values are no grid of the format; is checkpoint_format right?",
            )
