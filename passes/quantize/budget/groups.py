"""Weights that get one format together: those that read one input, which fusions may merge."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optc.ir.linear import Linear, find_linears, head_of, merged_name
from optc.ir.pipeline.base import PassReport
from optc.ir.weights import LazyWeight
from optc.passes.numerics.affine import RoundRows, dequantize_rows, quantize_rows, zeros_of
from optc.passes.numerics.rounding import Float32
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.layer_schemes import fitting, stored_bits
from optc.proof.reference.calibration import weights_of
from optc.system.hardware.blas_threads import one_blas_thread


@dataclass(frozen=True)
class Group:
    """Linear layers of one input.

    Attributes:
        linears: At least one.
        is_head: They are the head alone.
    """

    linears: tuple[Linear, ...]
    is_head: bool = False

    @property
    def tensors(self) -> list[str]:
        """Names of the original tensors."""
        return list(dict.fromkeys(name for one in self.linears for name in weights_of(one)))

    @property
    def name(self) -> str:
        """Their names in one."""
        return merged_name(self.tensors) if len(self.tensors) > 1 else self.tensors[0]

    @property
    def role(self) -> str:
        """The name without numbers, which groups of the same place in other layers share."""
        return re.sub(r"\d+", "#", self.name)

    @property
    def weights(self) -> int:
        """The number of weights."""
        return sum(rows * columns for rows, columns in self.shapes())

    def bits(self, scheme: Scheme) -> int:
        """Bits of them all, stored by a scheme that fits."""
        return sum(stored_bits(scheme, *shape) for shape in self.shapes())

    def fitting(self, schemes: Iterable[Scheme]) -> list[Scheme]:
        """The schemes that are possible for their K, each once."""
        found = (fitting(scheme, self.linears[0], PassReport()) for scheme in schemes)
        return list(dict.fromkeys(found))

    def shapes(self) -> list[tuple[int, int]]:
        """[N, K] of each weight."""
        return [(one.weight.rows_shape[0], one.weight.rows_shape[1]) for one in self.linears]


def groups_of(model: ir.Model, *, head: bool) -> list[Group]:
    """The groups of a dense form in the order of its graph; with the head, or without."""
    last = head_of(model)
    found: dict[ir.Value, list[Linear]] = {}
    heads = []
    for linear in find_linears(model):
        if last is not None and linear.initializer is last.initializer:
            heads.append(Group((linear,), is_head=True))
        else:
            found.setdefault(linear.x, []).append(linear)
    return [*(Group(tuple(one)) for one in found.values()), *(heads if head else [])]


def rounded(weight: LazyWeight, scheme: Scheme, rounder: RoundRows | None) -> LazyWeight:
    """The values of a weight's quantized rows, computed as they are read."""
    name = weight.name or "weight"

    def read(start: int, stop: int) -> Float32:
        rows = np.asarray(weight.read_rows(start, stop), np.float32)
        with one_blas_thread():
            tile = (rounder or quantize_rows)(rows, scheme, name, zeros_of(rows, scheme))
        return dequantize_rows(tile, scheme.group_size)

    return LazyWeight(
        read, weight.rows_shape, ir.DataType.FLOAT, name, transposed=weight.transposed
    )


def sampled_rows(rows: int, most: int, tile: int = 256) -> Sequence[slice]:
    """All rows in tiles or, if there are more than ``most``, evenly spaced tiles of them."""
    starts = list(range(0, rows, tile))
    if rows > most:
        wanted = np.linspace(0, len(starts) - 1, max(1, most // tile)).round().astype(int)
        starts = [starts[i] for i in dict.fromkeys(wanted.tolist())]
    return [slice(start, min(start + tile, rows)) for start in starts]
