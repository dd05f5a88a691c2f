"""`quantize-blocks`: weights of products in 8 bits, a scale for each block of inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.forms.batched import BatchedTensors
from optc.ir.forms.form import Form
from optc.ir.functions import is_op
from optc.ir.graph import remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Phase
from optc.runtime.executable.block_hadamard import BLOCKS, block_hadamard

Float32 = npt.NDArray[np.float32]
#: The integer of 0, and the largest one on each side of it.
_ZERO, _MOST = 128, 127


class _Weight(NamedTuple):
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
class QuantizeBlocks(Pass):
    """MatMul with a constant weight gets it from ``DequantizeLinear`` in blocks of its inputs, and
    so does the embedding that shares a weight with the head.

    Backends may round the products' inputs too, in the same blocks: ONNX Runtime multiplies
    integers then (docs/onnxruntime.md). For that, inputs are rotated in blocks by a Hadamard
    matrix, and weights with them: outliers of single channels spread over their block, and the
    products stay (Ashkboos et al., QuaRot, 2024, arXiv:2404.00456).

    Attributes:
        group_size: Inputs that share a scale.
        block: Inputs that are rotated together, at most; 0 rotates nothing.
        least_inputs: Products over fewer inputs stay float: rounding them gains nothing.
    """

    name: ClassVar[str] = "quantize-blocks"
    pays: ClassVar[str] = (
        "For models of speech: weights take 10 bits each, and transcripts stay (ADR 0166)."
    )
    phase: ClassVar[Phase] = Phase.ROUNDING
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (BatchedTensors,)

    group_size: int = 16
    block: int = 64
    least_inputs: int = 16

    def __post_init__(self) -> None:
        """Refuse other sizes.

        Raises:
            InputError: A size is none that kernels have.
        """
        self.check_option("group_size", (16, 32, 64, 128))
        self.check_option("block", (0, 16, 64))

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report, work, weights = PassReport(), _Work(model.graph, self), 0
        for node in list(model.graph):
            if not is_op(node, "MatMul"):
                continue
            weight = _weight(node)
            if weight is None:
                report.skip(node, "its second operand is no constant matrix")
                continue
            inputs = _rows_of(weight).shape[1]
            if inputs < self.least_inputs:
                report.skip(node, f"it has {inputs} inputs")
            elif inputs % self.group_size:
                reason = f"its {inputs} inputs fill no groups of {self.group_size}"
                report.miss(node, reason, _rows_of(weight).size)
            else:
                work.rewrite(node, weight)
                report.add("int8 in blocks")
                weights += _rows_of(weight).size
        for node in list(model.graph):
            if is_op(node, "Gather") and node.inputs[0] in work.shared:
                work.look_up(node)
                report.add("embedding int8 in blocks")
        report.judge_missed(weights + report.missed, "int8")
        remove_unused(model)  # float weights
        return report

    def block_of(self, inputs: int) -> int:
        """So many of a product's inputs are rotated together; 0 where no block fills them."""
        fitting = (size for size in BLOCKS if size <= self.block and inputs % size == 0)
        return max(fitting, default=0)


class _Work:
    """Rewrites one graph."""

    def __init__(self, graph: ir.Graph, options: QuantizeBlocks) -> None:
        self._graph, self._options = graph, options
        self._turned: dict[ir.Value, ir.Value] = {}
        #: Tables whose initializer has a row for each output, so that embeddings may read them.
        self.shared: dict[ir.Value | None, _Table] = {}

    def rewrite(self, node: ir.Node, weight: _Weight) -> None:
        """A product by a weight in blocks."""
        name, x = str(node.outputs[0].name), node.inputs[0]
        rows = _rows_of(weight)
        table = self._table(weight, name)
        made: list[ir.Node] = []
        if x is None:
            raise ValueError(f"{name} has no input")
        if self._options.block_of(rows.shape[1]):
            if x not in self._turned:
                rank = len(x.shape or ())
                kept = [0] * (rank - 1)
                self._turned[x] = self._rotated(x, kept, rows.shape[1], name, made)
            x = self._turned[x]
        blocks = {"axis": 2, "block_size": self._options.group_size}
        wide = ir.node("DequantizeLinear", list(table[:3]), blocks, name=f"{name}.wide")
        flat = ir.node("Reshape", [wide.outputs[0], self._shape(f"{name}.rows", rows.shape)])
        turned = ir.node("Transpose", [flat.outputs[0]], {"perm": [1, 0]})
        product = ir.node("MatMul", [x, turned.outputs[0]], name=f"{name}.product")
        self._replace(node, [*made, wide, flat, turned, product])

    def look_up(self, node: ir.Node) -> None:
        """Rows of a table that a product reads, too."""
        name, table, rows = str(node.outputs[0].name), self.shared[node.inputs[0]], node.inputs[1]
        codes = ir.node("Gather", [table.codes, rows], name=f"{name}.codes")
        scales = ir.node("Gather", [table.scales, rows], name=f"{name}.scales")
        wide = ir.node("Cast", [codes.outputs[0]], {"to": int(ir.DataType.FLOAT)})
        zero = self._constant(f"{name}.zero", np.array(_ZERO, np.float32))
        apart = ir.node("Sub", [wide.outputs[0], zero])
        scaled = ir.node("Mul", [apart.outputs[0], scales.outputs[0]])
        rank = len(rows.shape or ()) if rows is not None else 0
        whole = self._shape(f"{name}.whole", [0] * rank + [-1])
        flat = ir.node("Reshape", [scaled.outputs[0], whole])
        made = [codes, scales, wide, apart, scaled, flat]
        if self._options.block_of(width := table.width):  # the matrix is its own inverse
            self._rotated(flat.outputs[0], [0] * rank, width, name, made)
        self._replace(node, made)

    def _table(self, weight: _Weight, name: str) -> _Table:
        if weight.turned and weight.value in self.shared:
            return self.shared[weight.value]
        rows, size = _rows_of(weight), self._options.group_size
        if block := self._options.block_of(rows.shape[1]):
            rows = block_hadamard(rows, block)
        groups = rows.reshape(len(rows), -1, size)
        largest = np.abs(groups).max(axis=2, keepdims=True)
        scales = (np.where(largest > 0, largest, 1) / _MOST).astype(np.float32)
        codes = (np.rint(groups / scales) + _ZERO).astype(np.uint8)
        zeros = np.full(scales.shape, _ZERO, np.uint8)
        table = _Table(
            self._constant(f"{name}.codes", codes),
            self._constant(f"{name}.scales", scales),
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
        block = self._options.block_of(width)
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


def _weight(node: ir.Node) -> _Weight | None:
    """The weight of a product, which is a float matrix or the transpose of one."""
    value, turned = node.inputs[1], False
    maker = None if value is None else value.producer()
    if maker is not None and is_op(maker, "Transpose"):
        value, turned = maker.inputs[0], True
    tensor = None if value is None else value.const_value
    if value is None or tensor is None:
        return None
    known = tensor.dtype == ir.DataType.FLOAT and len(tensor.shape) == 2
    return _Weight(value, turned) if known else None


def _rows_of(weight: _Weight) -> Float32:
    """f32[N, K]: a row for each output."""
    tensor = weight.value.const_value
    if tensor is None:
        raise ValueError("a weight has no value")
    array: Float32 = tensor.numpy()
    return array if weight.turned else np.ascontiguousarray(array.T)
