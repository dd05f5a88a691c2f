"""Writes the integers of a graph's regions as QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import add_initializer, constant
from optc.passes.general.integer_regions import Regions
from optc.passes.general.value_ranges import STEPS, Range
from optc.passes.general.weight_rounding import Hessians

Array = npt.NDArray[Any]
#: A bias in its scale stays within so much of int32, so that sums do not overflow.
_MOST_BIAS = 1 << 30
#: Types of activations by name, with their least value.
_KINDS = {"u8": (np.uint8, 0), "s8": (np.int8, -128)}


@dataclass(frozen=True)
class _Scale:
    """Scale and zero point of a value."""

    number: np.float32
    scale: ir.Value
    zero: ir.Value


@dataclass
class QdqWriter:
    """Rewrites a graph so that its regions compute in integers.

    Attributes:
        graph: Changed in place.
        found: What becomes integers.
        ranges: Of the values that have a scale of their own, by name.
        activations: ``u8`` or ``s8``.
        bits: Of weights, 7 or 8.
        hessians: Of products, by which weights are rounded; None rounds them to the nearest.
    """

    graph: ir.Graph
    found: Regions
    ranges: Mapping[str, Range]
    activations: str
    bits: int
    hessians: Hessians | None

    def write(self) -> None:
        """Rewrite the graph."""
        scales: dict[ir.Value, _Scale] = {}
        for root, values in self.found.scales().items():
            made = self._scale(str(root.name), self.ranges[str(root.name)])
            scales.update(dict.fromkeys(values, made))
        for node in self.found.products:
            if node.inputs[0] is not None:
                self._quantize_weight(node, scales[node.inputs[0]].number)
        cut = {clip.outputs[0]: node for node, clip in self.found.clips.items()}
        members = {*self.found.products, *self.found.others}
        for value, scale in scales.items():
            self._round(value, cut.get(value), scale, members)

    def _scale(self, name: str, ends: Range) -> _Scale:
        kind, least = _KINDS[self.activations]
        least_step = float(np.finfo(np.float32).tiny)
        number = np.float32(max((ends.high - ends.low) / STEPS, least_step))
        if ends.high == ends.low:
            number = np.float32(1)
        zero = int(np.clip(np.rint(-ends.low / number), 0, STEPS)) + least
        return _Scale(
            number,
            self._constant(f"{name}.scale", np.array(number)),
            self._constant(f"{name}.zero_point", np.array(zero, kind)),
        )

    def _round(
        self, value: ir.Value, source: ir.Node | None, scale: _Scale, members: set[ir.Node]
    ) -> None:
        """Put rounding behind ``value``, or in its place behind ``source``, whose result it cuts.

        What a member computes is read rounded by all, so that its kernel writes integers; other
        values only by members.
        """
        node = source or value.producer()
        before = value if source is None else source.outputs[0]
        pair = [scale.scale, scale.zero]
        first = ir.node("QuantizeLinear", [before, *pair], name=f"{value.name}.quantize")
        second = ir.node(
            "DequantizeLinear", [first.outputs[0], *pair], name=f"{value.name}.dequantize"
        )
        rounded = second.outputs[0]
        rounded.type, rounded.shape = value.type, value.shape
        everywhere = node in members
        for use in tuple(value.uses()):
            reads = use.node in members or (everywhere and use.node.graph is self.graph)
            if use.node is not first and reads:
                use.node.replace_input_with(use.idx, rounded)
        if node is None:
            self.graph.insert_before(self.graph[0], [first, second])
        else:
            self.graph.insert_after(node, [first, second])
        if everywhere and value in self.graph.outputs:
            self.graph.outputs[self.graph.outputs.index(value)] = rounded
            rounded.name, value.name = value.name, f"{value.name}.float"

    def _quantize_weight(self, node: ir.Node, x_scale: np.float32) -> None:
        weight = _array(node.inputs[1])
        turned = "transB" in node.attributes and node.attributes["transB"].value
        axis = 0 if is_op(node, "Conv") or turned else 1
        most = (1 << (self.bits - 1)) - 1
        moved = np.moveaxis(weight, axis, 0)
        rows = moved.reshape(len(moved), -1)
        scales = np.abs(rows).max(axis=1).astype(np.float64) / most
        bias = _array(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
        if bias is not None:  # a channel next to zero gets a scale that its bias fits
            scales = np.maximum(scales, np.abs(bias) / (_MOST_BIAS * np.float64(x_scale)))
        scales = np.maximum(scales, np.finfo(np.float32).tiny).astype(np.float32)
        codes = self._integers(node, rows, scales, most)
        name = str(node.outputs[0].name)  # nodes may share names
        integers = np.ascontiguousarray(np.moveaxis(codes.reshape(moved.shape), 0, axis))
        node.replace_input_with(
            1, self._dequantized(node, f"{name}.weight", integers, scales, axis)
        )
        if bias is not None:
            both = scales * x_scale
            limit = np.iinfo(np.int32).max
            sums = np.clip(np.rint(bias / both.astype(np.float64)), -limit, limit)
            made = self._dequantized(node, f"{name}.bias", sums.astype(np.int32), both, 0)
            node.replace_input_with(2, made)

    def _integers(self, node: ir.Node, rows: Array, scales: Array, most: int) -> Array:
        """Integers i8[O, K] of a weight [O, K]."""
        if self.hessians is not None:
            return self.hessians.integers(node, rows, scales, most)
        found: Array = np.clip(np.rint(rows / scales[:, None]), -most, most).astype(np.int8)
        return found

    def _dequantized(
        self, before: ir.Node, name: str, integers: Array, scales: Array, axis: int
    ) -> ir.Value:
        inputs = [
            self._constant(f"{name}_integers", integers),
            self._constant(f"{name}_scale", scales),
            self._constant(f"{name}_zero_point", np.zeros(scales.shape, integers.dtype)),
        ]
        made = ir.node("DequantizeLinear", inputs, {"axis": axis}, name=f"{name}.dequantize")
        made.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        made.outputs[0].shape = ir.Shape(integers.shape)
        self.graph.insert_before(before, made)
        return made.outputs[0]

    def _constant(self, name: str, array: Array) -> ir.Value:
        return add_initializer(self.graph, ir.tensor(array, name=name), name)


def _array(value: ir.Value | None) -> Array:
    tensor = constant(value)
    if tensor is None:
        raise ValueError("is no constant")
    found: Array = tensor.numpy()
    return found
