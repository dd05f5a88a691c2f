"""`quantize-products`: int8 weights per channel, inputs rounded to 8 bits as the engine runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.forms.batched import BatchedTensors
from optc.ir.forms.form import Form
from optc.ir.functions import is_op
from optc.ir.graph import remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Phase

Array = npt.NDArray[Any]
#: Smaller blocks spread an outlier over too few channels.
_LEAST_BLOCK = 8


@dataclass(frozen=True)
class QuantizeProducts(Pass):
    """MatMul and Gemm with a constant weight multiply integers: ``DynamicQuantizeLinear``,
    ``MatMulInteger``, and the product of both scales.

    Weights are symmetric, one scale for each output channel; inputs have one scale and one zero
    point for the whole tensor, of its own range each time. ONNX Runtime has one kernel for the
    pattern. Before they are rounded, inputs are rotated in blocks by a Hadamard matrix, and weights
    with them: outliers of single channels then spread over their block, and the products stay
    (Ashkboos et al., QuaRot, 2024, arXiv:2404.00456).

    Attributes:
        least_inputs: Products over fewer inputs stay float: rounding them gains nothing.
        bits: 8, or 7, which keeps sums of pairs within 16 bits on CPUs with AVX2 alone, where
            ONNX Runtime's kernels saturate.
        block: Channels of a block, a power of two: the largest one up to it that divides the inputs
            counts, 8 at least; 0 rotates nothing.
    """

    name: ClassVar[str] = "quantize-products"
    pays: ClassVar[str] = (
        "On processors with products of int8: all-MiniLM-L6-v2 was 1.7 times as fast as float32 "
        "at a mean cosine of 0.9991 (ADR 0161)."
    )
    phase: ClassVar[Phase] = Phase.ROUNDING
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (BatchedTensors,)

    least_inputs: int = 16
    bits: int = 8
    block: int = 64

    def __post_init__(self) -> None:
        """Refuse other numbers of bits.

        Raises:
            InputError: ``bits`` is neither 7 nor 8, or ``block`` no power of two.
        """
        self.check_option("bits", (7, 8))
        self.check_option("block", (0, 8, 16, 32, 64, 128))

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        rounded: dict[ir.Value, tuple[ir.Value, ir.Value, ir.Value]] = {}
        weights = 0
        for node in list(model.graph):
            if not is_op(node, "MatMul", "Gemm"):
                continue
            weight = _weight(node)
            if weight is None:
                report.skip(node, "its second operand is no constant matrix")
            elif weight.shape[0] < self.least_inputs:
                report.skip(node, f"it has {weight.shape[0]} inputs")
            elif reason := _reason_against(node):
                report.miss(node, reason, weight.size)
            else:
                self._rewrite(model.graph, node, weight, rounded)
                report.add("int8 per channel")
                weights += weight.size
        report.judge_missed(weights + report.missed, "int8")
        remove_unused(model)  # float weights
        return report

    def _rewrite(
        self,
        graph: ir.Graph,
        node: ir.Node,
        weight: Array,
        rounded: dict[ir.Value, tuple[ir.Value, ir.Value, ir.Value]],
    ) -> None:
        x, name = node.inputs[0], str(node.outputs[0].name)  # nodes may share names
        if x is None:
            raise ValueError(f"{name} has no input")
        made: list[ir.Node] = []
        block = self._block_of(x, len(weight))
        if x not in rounded:
            turned = _rotated(graph, x, block, name, made) if block else x
            first = ir.node("DynamicQuantizeLinear", [turned], num_outputs=3, name=f"{name}.round")
            made.append(first)
            rounded[x] = (first.outputs[0], first.outputs[1], first.outputs[2])
        if block:
            blocks = weight.reshape(-1, block, weight.shape[1])
            weight = (hadamard(block) @ blocks).reshape(weight.shape)
        codes, scale, zero = rounded[x]
        most = (1 << (self.bits - 1)) - 1
        scales = np.maximum(np.abs(weight).max(axis=0), np.finfo(np.float32).tiny) / most
        integers = np.rint(weight / scales).astype(np.int8)
        stored = _constant(graph, f"{name}.weight_int8", integers)
        own = _constant(graph, f"{name}.weight_scale", scales.astype(np.float32))
        product = ir.node("MatMulInteger", [codes, stored, zero], name=f"{name}.int8")
        cast = ir.node("Cast", [product.outputs[0]], {"to": int(ir.DataType.FLOAT)})
        both = ir.node("Mul", [scale, own])
        result = ir.node("Mul", [cast.outputs[0], both.outputs[0]], name=f"{name}.scaled")
        made += [product, cast, both, result]
        if is_op(node, "Gemm") and len(node.inputs) > 2 and node.inputs[2] is not None:
            result = ir.node("Add", [result.outputs[0], node.inputs[2]], name=f"{name}.bias")
            made.append(result)
        ir.convenience.replace_nodes_and_values(
            graph, node, [node], made, [node.outputs[0]], [result.outputs[0]]
        )

    def _block_of(self, x: ir.Value, inputs: int) -> int:
        """Channels of the blocks in which ``x`` is rotated; 0 where it is not."""
        if x.shape is None:
            return 0
        sizes = (self.block >> shift for shift in range(5) if self.block >> shift >= _LEAST_BLOCK)
        return next((size for size in sizes if inputs % size == 0), 0)


def hadamard(size: int) -> npt.NDArray[np.float32]:
    """The orthonormal Hadamard matrix of Sylvester [size, size], for a power of two; symmetric."""
    found = np.ones((1, 1), np.float32)
    while len(found) < size:
        found = np.block([[found, found], [found, -found]])
    return (found / np.sqrt(size)).astype(np.float32)


def _rotated(graph: ir.Graph, x: ir.Value, block: int, name: str, made: list[ir.Node]) -> ir.Value:
    """``x`` [..., K], each of its blocks rotated; the nodes go into ``made``."""
    rank = len(x.shape or ())
    kept = [0] * (rank - 1)  # as they are, in ONNX's Reshape
    apart = _constant(graph, f"{name}.blocks", np.array([*kept, -1, block], np.int64))
    whole = _constant(graph, f"{name}.whole", np.array([*kept, -1], np.int64))
    matrix = _constant(graph, f"{name}.hadamard", hadamard(block))
    split = ir.node("Reshape", [x, apart])
    turned = ir.node("MatMul", [split.outputs[0], matrix], name=f"{name}.rotate")
    joined = ir.node("Reshape", [turned.outputs[0], whole])
    made += [split, turned, joined]
    return joined.outputs[0]


def _constant(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    value = ir.Value(
        name=name,
        const_value=ir.tensor(array, name=name),
        shape=ir.Shape(array.shape),
        type=ir.TensorType(ir.tensor(array).dtype),
    )
    graph.register_initializer(value)
    return value


def _weight(node: ir.Node) -> Array | None:
    """The weight [K, N] of a product in float32; None if it is no constant matrix."""
    value = node.inputs[1]
    tensor = None if value is None else value.const_value
    if tensor is None or tensor.dtype != ir.DataType.FLOAT or len(tensor.shape) != 2:
        return None
    array = tensor.numpy()
    turned = is_op(node, "Gemm") and "transB" in node.attributes and node.attributes["transB"].value
    return np.ascontiguousarray(array.T) if turned else array


def _reason_against(node: ir.Node) -> str:
    """Empty if a product is plain: Gemm scales nothing and turns no input."""
    stated = {name: attribute.value for name, attribute in node.attributes.items()}
    plain = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    found = (name for name, usual in plain.items() if stated.get(name, usual) != usual)
    return next((f"{name}={stated[name]}" for name in found), "")
