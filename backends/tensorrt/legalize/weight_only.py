"""`tensorrt-weight-only`: integer weights as DequantizeLinear, activations as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import onnx_ir as ir

from optc.backends.tensorrt.support import ZERO_POINTS, has_zero_points
from optc.errors import UnsupportedError
from optc.ir.emit import Emitter, dims_of
from optc.ir.forms.form import Form
from optc.ir.forms.static_kv import StaticKV
from optc.ir.functions import DOMAIN, operand
from optc.ir.graph import add_initializer, constant, remove_unused, replace_node
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.quantizers import FloatOperands
from optc.ir.weights import LazyWeight


@dataclass(frozen=True)
class WeightOnly(Pass):
    """Weights are dequantized where they are multiplied; activations stay in the compute type.

    Legal cases:
        1. ``optc::QuantizedMatMul`` becomes DequantizeLinear and MatMul: TensorRT has no matmul of
           activations that are quantized as it runs, and computes these as floats, which is more
           exact; the operators that quantized them go away;
        2. ``optc::QuantizedGather`` becomes Gather from a dequantized table;
        3. ``optc::Bf16MatMul`` and ``optc::Bf16Gather`` become MatMul and Gather.

    Weights with zero points or integer scales of groups are refused: TensorRT has neither.
    """

    name: ClassVar[str] = "tensorrt-weight-only"
    takes: ClassVar[tuple[type[Form], ...]] = (StaticKV,)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            UnsupportedError: A weight has zero points; named.
        """
        report = PassReport()
        rules = {
            "QuantizedMatMul": _matmul,
            "QuantizedGather": _gather,
            "Bf16MatMul": _bf16_matmul,
            "Bf16Gather": _bf16_gather,
        }
        floats = FloatOperands(model)
        for node in [n for n in model.graph if n.domain == DOMAIN and n.op_type in rules]:
            name = node.name or node.outputs[0].name or node.op_type
            emit = Emitter(model.graph, name)
            source = floats.of(node.inputs[0])
            x = node.inputs[0] if source is None else source
            kind, output = rules[node.op_type](emit, node, x)
            replace_node([node], emit.nodes, node.outputs, [output])
            report.add(kind)
        report.facts = {"activations_no_longer_quantized": len(floats)}
        remove_unused(model)
        return report


Rewritten = tuple[str, ir.Value]


def _matmul(emit: Emitter, node: ir.Node, x: ir.Value | None) -> Rewritten:
    weight, scale, bias = (operand(node, name) for name in ("weight", "w_scale", "bias"))
    values = _lazy(node, weight)
    _refuse_zero_points(node)
    bits, block = _form(node)
    columns = values.rows_shape[0]
    options: dict[str, Any] = {"axis": 0, "block_size": block} if block else {"axis": 1}
    dims = [values.rows_shape[1], columns]
    wide = emit.op("dequantize", "DequantizeLinear", [weight, scale], dims, **options)
    kind = f"int{bits} in blocks of {block}" if block else f"int{bits} per channel"
    return kind, _product(emit, node, x, wide, bias)


def _bf16_matmul(emit: Emitter, node: ir.Node, x: ir.Value | None) -> Rewritten:
    weight, bias = [*node.inputs, None][1:3]
    _lazy(node, weight)
    return "bfloat16", _product(emit, node, x, weight, bias)


def _product(
    emit: Emitter,
    node: ir.Node,
    x: ir.Value | None,
    weight: ir.Value | None,
    bias: ir.Value | None,
) -> ir.Value:
    dims = dims_of(node.outputs[0])
    product = emit.op("matmul", "MatMul", [x, weight], dims)
    return product if bias is None else emit.op("bias", "Add", [product, bias], dims)


def _gather(emit: Emitter, node: ir.Node, tokens: ir.Value | None) -> Rewritten:
    """A row of the table [V, D] for each token; the head's weight is its transpose."""
    weight, scale = (operand(node, name) for name in ("weight", "w_scale"))
    values = _lazy(node, weight)
    _refuse_zero_points(node)
    bits, block = _form(node)
    graph = node.graph
    if not isinstance(graph, ir.Graph):
        raise ValueError(f"{node.name} is in no graph")
    table = add_initializer(graph, values.transpose(), f"{values.name}.table")
    scales = scale
    if block:
        by_block = _lazy(node, scale)
        scales = add_initializer(graph, by_block.transpose(), f"{by_block.name}.table")
    options: dict[str, Any] = {"axis": 1, "block_size": block} if block else {"axis": 0}
    dims = list(values.rows_shape)
    wide = emit.op("dequantize", "DequantizeLinear", [table, scales], dims, **options)
    return f"embedding int{bits}", _rows(emit, node, wide, tokens)


def _bf16_gather(emit: Emitter, node: ir.Node, tokens: ir.Value | None) -> Rewritten:
    values = _lazy(node, node.inputs[1])
    graph = node.graph
    if not isinstance(graph, ir.Graph):
        raise ValueError(f"{node.name} is in no graph")
    table = add_initializer(graph, values.transpose(), f"{values.name}.table")
    return "embedding bfloat16", _rows(emit, node, table, tokens)


def _rows(emit: Emitter, node: ir.Node, table: ir.Value, tokens: ir.Value | None) -> ir.Value:
    return emit.op("lookup", "Gather", [table, tokens], dims_of(node.outputs[0]), axis=0)


def _form(node: ir.Node) -> tuple[int, int]:
    return node.attributes.get_int("bits", 8), node.attributes.get_int("group_size", 0)


def _lazy(node: ir.Node, value: ir.Value | None) -> LazyWeight:
    tensor = constant(value)
    if not isinstance(tensor, LazyWeight):
        raise ValueError(f"{node.name}: the weight is no LazyWeight")
    return tensor


def _refuse_zero_points(node: ir.Node) -> None:
    """Zero points and, beside them, integer scales of groups have no kernels."""
    if has_zero_points(node):
        raise UnsupportedError(ZERO_POINTS, where=f"tensorrt backend, node {node.name}")
