"""Weights in 8 bits, a scale for each block of inputs: to the nearest integer, or by GPTQ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.passes.numerics.gptq.factor import Factor
from optc.passes.numerics.gptq.rows import gptq_rows
from optc.passes.numerics.scheme import Scheme
from optc.proof.reference.tensor_samples import Sample
from optc.proof.reference.tensor_values import ValueRun
from optc.runtime.executable.block_hadamard import block_hadamard

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
#: The integer of 0, and the largest one on each side of it.
ZERO, MOST = 128, 127
#: Bytes of the Hessians that one run of the model collects.
_ROOM = 1 << 30


class Read(NamedTuple):
    """Inputs of products as these read a value [..., width]: so many rotated together, 0 none."""

    width: int
    block: int


class Blocks(NamedTuple):
    """A weight in blocks of g inputs: codes u8[N, G, g], and scales f32[N, G, 1]."""

    codes: npt.NDArray[np.uint8]
    scales: Float32


def nearest(rows: Float32, size: int) -> Blocks:
    """``rows`` f32[N, K], each weight rounded by itself; K is a multiple of ``size``."""
    groups = rows.reshape(len(rows), -1, size)
    scales = _scales(groups)
    return Blocks((np.rint(groups / scales) + ZERO).astype(np.uint8), scales)


def by_samples(rows: Float32, factor: Factor, size: int, name: str) -> Blocks:
    """``rows`` f32[N, K], rounded so that products with inputs x change least.

    Args:
        rows: K is a multiple of ``size``.
        factor: Of E[x xᵀ], for groups of ``size``.
        size: Inputs that share a scale.
        name: Of the weight, for messages.

    Raises:
        InputError: The rows hold infinities or NaN.
    """
    tile = gptq_rows(np.ascontiguousarray(rows), factor, Scheme(8, size, symmetric=True), name)
    codes = (tile.values.astype(np.int16) + ZERO).astype(np.uint8)
    return Blocks(codes.reshape(len(rows), -1, size), tile.scales.astype(np.float32)[:, :, None])


def hessians(
    model: ir.Model, inputs: Mapping[ir.Value, Read], samples: Sequence[Sample], size: int
) -> Iterator[tuple[ir.Value, Float64]]:
    """E[x xᵀ] of some values x [..., K], up to a factor, as products see them: rotated and rounded.

    Args:
        model: It is not changed. It runs once for as many Hessians as a GiB holds.
        inputs: By value how it is read.
        samples: Inputs of the model.
        size: Inputs that are rounded together.
    """
    some: dict[ir.Value, Read] = {}
    for value, read in inputs.items():
        if some and sum(map(_bytes, [*some.values(), read])) > _ROOM:
            yield from _observed(model, some, samples, size).items()
            some = {}
        some[value] = read
    yield from _observed(model, some, samples, size).items()


def _observed(
    model: ir.Model, inputs: Mapping[ir.Value, Read], samples: Sequence[Sample], size: int
) -> dict[ir.Value, Float64]:
    by_name = {str(value.name): value for value in inputs}
    found: dict[ir.Value, Float64] = {}

    def see(name: str, array: npt.NDArray[np.float32]) -> None:
        value = by_name[name]
        rows = _rounded(array.reshape(-1, array.shape[-1]), inputs[value].block, size)
        gram = (rows.T @ rows).astype(np.float64)
        if value in found:
            found[value] += gram
        else:
            found[value] = gram

    ValueRun(model, inputs).over(samples, see)
    return found


def _rounded(rows: Float32, block: int, size: int) -> Float32:
    """Rows as the engine's products read them."""
    turned = block_hadamard(rows, block) if block else rows
    groups = turned.reshape(len(rows), -1, size)
    scales = _scales(groups)
    found: Float32 = (np.rint(groups / scales) * scales).reshape(turned.shape)
    return found


def _scales(groups: Float32) -> Float32:
    largest = np.abs(groups).max(axis=2, keepdims=True)
    found: Float32 = (np.where(largest > 0, largest, 1) / MOST).astype(np.float32)
    return found


def _bytes(read: Read) -> int:
    return 8 * read.width * read.width
