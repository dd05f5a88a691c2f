"""Writes products by weights in blocks, as `quantize-blocks` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.passes.general.block_rounding import ZERO, Blocks, nearest
from optc.runtime.executable.block_hadamard import BLOCKS, block_hadamard

Float32 = npt.NDArray[np.float32]
#: Products with more outputs for each input are rescored.
_MANY = 16


class Weight(NamedTuple):
    """A weight, and what its initializer is turned by to have a row for each output."""

    value: ir.Value
    turned: bool


class _Table(NamedTuple):
    """A weight in blocks: u8 [N, G, g], f32 [N, G, 1] and u8 [N, G, 1]."""

    codes: ir.Value
    scales: ir.Value
    zeros: ir.Value
    width: int


@dataclass(frozen=True)
class Layout:
    """Sizes of blocks, as `optc.passes.general.quantize_blocks.QuantizeBlocks` has them."""

    group_size: int
    block: int
    rescored: int

    def block_of(self, inputs: int) -> int:
        """So many of a product's inputs are rotated together; 0 where no block fills them."""
        fitting = (size for size in BLOCKS if size <= self.block and inputs % size == 0)
        return max(fitting, default=0)

    def rotated(self, rows: Float32) -> Float32:
        """Rows f32[N, K] of a weight as its blocks hold them."""
        block = self.block_of(rows.shape[1])
        return block_hadamard(rows, block) if block else rows


class BlockWriter:
    """Rewrites one graph.

    Args:
        graph: Its products get weights in blocks.
        layout: Sizes of blocks.
        rounded: Weights that were rounded before; others are rounded to the nearest.
    """

    def __init__(self, graph: ir.Graph, layout: Layout, rounded: Mapping[ir.Value, Blocks]) -> None:
        self._graph, self._layout, self._rounded = graph, layout, rounded
        self._turned: dict[ir.Value, ir.Value] = {}
        #: Tables in float16, by the initializer that has a row for each output.
        self.halves: dict[ir.Value | None, ir.Value] = {}
        #: Tables whose initializer has a row for each output, so that embeddings may read them.
        self.shared: dict[ir.Value | None, _Table] = {}

    def rewrite(self, node: ir.Node, weight: Weight) -> None:
        """A product by a weight in blocks."""
        name, x = str(node.outputs[0].name), node.inputs[0]
        rows = rows_of(weight)
        table = self._table(weight, name)
        made: list[ir.Node] = []
        if x is None:
            raise ValueError(f"{name} has no input")
        if self._layout.block_of(rows.shape[1]):
            if x not in self._turned:
                rank = len(x.shape or ())
                kept = [0] * (rank - 1)
                self._turned[x] = self._rotated(x, kept, rows.shape[1], name, made)
            x = self._turned[x]
        blocks = {"axis": 2, "block_size": self._layout.group_size}
        wide = ir.node("DequantizeLinear", list(table[:3]), blocks, name=f"{name}.wide")
        flat = ir.node("Reshape", [wide.outputs[0], self._shape(f"{name}.rows", rows.shape)])
        turned = ir.node("Transpose", [flat.outputs[0]], {"perm": [1, 0]})
        product = ir.node("MatMul", [x, turned.outputs[0]], name=f"{name}.product")
        made += [wide, flat, turned, product]
        if self._layout.rescored and len(rows) > _MANY * rows.shape[1]:
            made += self._rescored(node, product.outputs[0], weight, name)
        self._replace(node, made)

    def _rescored(
        self, node: ir.Node, product: ir.Value, weight: Weight, name: str
    ) -> list[ir.Node]:
        """The largest results of each row once more, with weights in float16."""
        rows = rows_of(weight)
        table = self._constant(f"{name}.half", rows.astype(np.float16))
        if weight.turned:
            self.halves[weight.value] = table
        count = self._shape(f"{name}.count", [min(self._layout.rescored, len(rows))])
        largest = ir.node("TopK", [product, count], {"axis": -1, "sorted": 0}, num_outputs=2)
        places = largest.outputs[1]
        some = ir.node("Gather", [table, places])
        wide = ir.node("Cast", [some.outputs[0]], {"to": int(ir.DataType.FLOAT)})
        column = ir.node("Unsqueeze", [node.inputs[0], self._shape(f"{name}.column", [-1])])
        again = ir.node("MatMul", [wide.outputs[0], column.outputs[0]], name=f"{name}.again")
        flat = ir.node("Squeeze", [again.outputs[0], self._shape(f"{name}.flat", [-1])])
        merged = ir.node(
            "ScatterElements",
            [product, places, flat.outputs[0]],
            {"axis": -1},
            name=f"{name}.rescored",
        )
        return [largest, some, wide, column, again, flat, merged]

    def look_up_half(self, node: ir.Node) -> None:
        """Rows of a table in float16."""
        some = ir.node("Gather", [self.halves[node.inputs[0]], node.inputs[1]])
        wide = ir.node("Cast", [some.outputs[0]], {"to": int(ir.DataType.FLOAT)})
        self._replace(node, [some, wide])

    def look_up(self, node: ir.Node) -> None:
        """Rows of a table that a product reads, too."""
        name, table, rows = str(node.outputs[0].name), self.shared[node.inputs[0]], node.inputs[1]
        codes = ir.node("Gather", [table.codes, rows], name=f"{name}.codes")
        scales = ir.node("Gather", [table.scales, rows], name=f"{name}.scales")
        wide = ir.node("Cast", [codes.outputs[0]], {"to": int(ir.DataType.FLOAT)})
        zero = self._constant(f"{name}.zero", np.array(ZERO, np.float32))
        apart = ir.node("Sub", [wide.outputs[0], zero])
        scaled = ir.node("Mul", [apart.outputs[0], scales.outputs[0]])
        rank = len(rows.shape or ()) if rows is not None else 0
        whole = self._shape(f"{name}.whole", [0] * rank + [-1])
        flat = ir.node("Reshape", [scaled.outputs[0], whole])
        made = [codes, scales, wide, apart, scaled, flat]
        if self._layout.block_of(width := table.width):  # the matrix is its own inverse
            self._rotated(flat.outputs[0], [0] * rank, width, name, made)
        self._replace(node, made)

    def _table(self, weight: Weight, name: str) -> _Table:
        if weight.turned and weight.value in self.shared:
            return self.shared[weight.value]
        rows = self._layout.rotated(rows_of(weight))
        blocks = self._rounded.get(weight.value) or nearest(rows, self._layout.group_size)
        zeros = np.full(blocks.scales.shape, ZERO, np.uint8)
        table = _Table(
            self._constant(f"{name}.codes", blocks.codes),
            self._constant(f"{name}.scales", blocks.scales),
            self._constant(f"{name}.zeros", zeros),
            rows.shape[1],
        )
        if weight.turned:
            self.shared[weight.value] = table
        return table

    def _rotated(
        self, x: ir.Value, kept: list[int], width: int, name: str, made: list[ir.Node]
    ) -> ir.Value:
        """``x`` [..., width], each of its blocks rotated; the nodes go into ``made``."""
        block = self._layout.block_of(width)
        split = ir.node("Reshape", [x, self._shape(f"{name}.blocks", [*kept, -1, block])])
        matrix = self._constant(
            f"{name}.hadamard", block_hadamard(np.eye(block, dtype=np.float32), block)
        )
        turned = ir.node("MatMul", [split.outputs[0], matrix], name=f"{name}.rotate")
        whole = self._shape(f"{name}.channels", [*kept, -1])
        joined = ir.node("Reshape", [turned.outputs[0], whole])
        made += [split, turned, joined]
        return joined.outputs[0]

    def _replace(self, node: ir.Node, made: list[ir.Node]) -> None:
        old, new = node.outputs[0], made[-1].outputs[0]
        new.shape, new.type = old.shape, old.type
        ir.convenience.replace_nodes_and_values(self._graph, node, [node], made, [old], [new])

    def _shape(self, name: str, sizes: Any) -> ir.Value:
        return self._constant(name, np.array([int(size) for size in sizes], np.int64))

    def _constant(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        tensor = ir.tensor(array, name=name)
        value = ir.Value(
            name=name,
            const_value=tensor,
            shape=ir.Shape(array.shape),
            type=ir.TensorType(tensor.dtype),
        )
        self._graph.register_initializer(value)
        return value


def weight_of(node: ir.Node) -> Weight | None:
    """The weight of a product, which is a float matrix or the transpose of one."""
    value, turned = node.inputs[1], False
    maker = None if value is None else value.producer()
    if maker is not None and is_op(maker, "Transpose"):
        value, turned = maker.inputs[0], True
    tensor = None if value is None else value.const_value
    if value is None or tensor is None:
        return None
    known = tensor.dtype == ir.DataType.FLOAT and len(tensor.shape) == 2
    return Weight(value, turned) if known else None


def rows_of(weight: Weight) -> Float32:
    """f32[N, K]: a row for each output."""
    tensor = weight.value.const_value
    if tensor is None:
        raise ValueError("a weight has no value")
    array: Float32 = tensor.numpy()
    return array if weight.turned else np.ascontiguousarray(array.T)
