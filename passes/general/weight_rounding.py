"""Weights of convolutions rounded one column after the other, errors made good by the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import constant
from optc.passes.general.value_ranges import STEPS, Range
from optc.proof.reference.tensor_samples import Sample
from optc.proof.reference.tensor_values import ValueRun

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
#: Windows of a sample that count, drawn at random, and of all samples together.
_OF_SAMPLE, _OF_ALL = 1024, 1 << 14
#: Of the mean of a Hessian's diagonal, added to it, so that it can be inverted.
_DAMP = 0.01


@dataclass
class Hessians:
    """E[x xᵀ] of the windows x that a product's weight is multiplied with, one for each group
    (Frantar et al., GPTQ, 2023, arXiv:2210.17323).

    Attributes:
        ranges: Of values by name: inputs are rounded before they count, as the engine does it.
        found: By node, f64[groups, K, K].
    """

    ranges: Mapping[str, Range]
    found: dict[ir.Node, Float64] = field(default_factory=dict)
    _rows: dict[ir.Node, int] = field(default_factory=dict)
    _integers: dict[str, Array] = field(default_factory=dict)

    def integers(self, node: ir.Node, weight: Array, scales: Array, most: int) -> Array:
        """`rounded_by_columns` for a node, or for one of a copy of its graph; once for each."""
        name = str(node.outputs[0].name)
        if name not in self._integers:
            hessian = next(h for one, h in self.found.items() if one.outputs[0].name == name)
            self._integers[name] = rounded_by_columns(weight, scales, hessian, most)
        return self._integers[name]

    @classmethod
    def observe(
        cls,
        model: ir.Model,
        roots: Mapping[ir.Node, str],
        samples: Sequence[Sample],
        ranges: Mapping[str, Range],
    ) -> Hessians:
        """Run ``model`` over ``samples``.

        Args:
            model: Its values are float.
            roots: Convolutions and products, each with the name of the value whose range its input
                has.
            samples: Inputs.
            ranges: As in `Hessians`.
        """
        made, source = cls(ranges), np.random.default_rng(0)
        reading: dict[str, list[ir.Node]] = {}
        for node in roots:
            reading.setdefault(str(_first(node).name), []).append(node)

        def see(name: str, array: Array) -> None:
            for node in reading[name]:
                made._add(node, array, roots[node], source)

        ValueRun(model, [_first(node) for node in roots]).over(samples, see)
        return made

    def _rounded(self, x: Float64, root: str) -> Float64:
        ends = self.ranges[root]
        step = (ends.high - ends.low) / STEPS or 1.0
        low, high = np.rint(ends.low / step), np.rint(ends.high / step)
        found: Float64 = np.clip(np.rint(x / step), low, high) * step
        return found

    def _add(self, node: ir.Node, x: Array, root: str, source: np.random.Generator) -> None:
        if self._rows.get(node, 0) >= _OF_ALL:
            return
        groups = self._rounded(windows(node, x, source).astype(np.float64), root)  # [G, rows, K]
        gram = groups.transpose(0, 2, 1) @ groups
        self.found[node] = self.found.get(node, 0.0) + gram
        self._rows[node] = self._rows.get(node, 0) + groups.shape[1]


def windows(node: ir.Node, x: Array, source: np.random.Generator) -> Array:
    """Windows of ``x`` [G, rows, K] that the weight of a product or convolution sees; some of them,
    where there are many. K runs over channels of a group, then over the window."""
    if not is_op(node, "Conv"):
        rows = x.reshape(-1, x.shape[-1])
        return rows[_drawn(len(rows), source)][None]
    weight = constant(node.inputs[1])
    if weight is None:
        raise ValueError("a convolution without a weight")
    kernel = list(weight.numpy().shape[2:])
    rank, groups = len(kernel), int(_stated(node, "group", 1))
    strides = _stated(node, "strides", [1] * rank)
    dilations = _stated(node, "dilations", [1] * rank)
    pads = _stated(node, "pads", [0] * 2 * rank)
    if _stated(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        wide = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
        pads = [size // 2 for size in wide] + [size - size // 2 for size in wide]
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    axes = tuple(range(2, 2 + rank))
    view = np.lib.stride_tricks.sliding_window_view(padded, extent, axis=axes)
    steps = [1, 1, *strides, *dilations]
    view = view[tuple(slice(None, None, step) for step in steps)]  # [N, C, *out, *kernel]
    moved = np.moveaxis(view, 1, 1 + rank)  # [N, *out, C, *kernel]
    places = moved.shape[: 1 + rank]
    chosen = np.unravel_index(_drawn(int(np.prod(places)), source), places)
    rows = moved[chosen]  # [rows, C, *kernel]
    split = rows.reshape(len(rows), groups, -1)
    return np.ascontiguousarray(split.transpose(1, 0, 2))


def rounded_by_columns(weight: Array, scales: Array, hessian: Float64, most: int) -> Array:
    """Integers of the rows of ``weight`` [O, K], whose outputs differ least from the float ones.

    Args:
        weight: Rows, those of a group one after the other.
        scales: f32[O].
        hessian: f64[G, K, K] of the groups.
        most: Largest magnitude of an integer.

    Returns:
        i8[O, K].
    """
    parts = np.split(weight.astype(np.float64), len(hessian))
    steps = np.split(scales.astype(np.float64), len(hessian))
    found = [_round_group(*one, most) for one in zip(parts, steps, hessian, strict=True)]
    return np.concatenate(found).astype(np.int8)


def _round_group(weight: Float64, steps: Float64, hessian: Float64, most: int) -> Float64:
    size = len(hessian)
    mean = float(np.trace(hessian)) / size or 1.0
    inverse = np.linalg.inv(hessian + _DAMP * mean * np.eye(size))
    upper = np.linalg.cholesky(inverse).T
    left, found = weight.copy(), np.empty_like(weight)
    for k in range(size):
        found[:, k] = np.clip(np.rint(left[:, k] / steps), -most, most)
        error = (left[:, k] - found[:, k] * steps) / upper[k, k]
        left[:, k + 1 :] -= error[:, None] * upper[k, k + 1 :]
    return found


def _drawn(count: int, source: np.random.Generator) -> npt.NDArray[np.intp]:
    if count <= _OF_SAMPLE:
        return np.arange(count)
    return source.choice(count, _OF_SAMPLE, replace=False)


def _first(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    if value is None:
        raise ValueError(f"{node.name} has no input")
    return value


def _stated(node: ir.Node, name: str, usual: Any) -> Any:
    attribute = node.attributes.get(name)
    return usual if attribute is None else attribute.value
