"""`tensorrt-inline`: the token-wise operators of ours in standard ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.backends.tensorrt.legalize.hadamard import block_hadamard
from optc.errors import UnsupportedError
from optc.ir.emit import Emitter, dims_of
from optc.ir.functions import DOMAIN, attributes_of
from optc.ir.functions.token_wise import GATE_DEFAULTS
from optc.ir.graph import replace_node, width
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport


@dataclass(frozen=True)
class Inline(Pass):
    """Norms and gated activations become the operators of their bodies, without the bodies'
    computations on shapes. NVFP4 matmuls that no pass before took are left as they are: ONNX
    Runtime computes their bodies."""

    name: ClassVar[str] = "tensorrt-inline"
    after: ClassVar[tuple[str, ...]] = ("tensorrt-weight-only", "tensorrt-attention")

    def ensures(self, model: ir.Model) -> None:
        """No operator of ours is left, but NVFP4."""
        left = sorted({node.op_type for node in _to_inline(model)})
        if left:
            raise RuntimeError(f"{self.name} left {', '.join(left)}")

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            UnsupportedError: An operator that TensorRT has no form of.
        """
        report = PassReport()
        for node in _to_inline(model):
            rule = _RULES.get(node.op_type)
            if rule is None:
                raise UnsupportedError(
                    f"optc::{node.op_type} has no form in TensorRT's operators",
                    where=f"tensorrt backend, node {node.name}",
                )
            emit = Emitter(model.graph, node.name or node.outputs[0].name or node.op_type)
            outputs = rule(emit, node)
            replace_node([node], emit.nodes, node.outputs, outputs)
            report.add(node.op_type)
        return report


def _to_inline(model: ir.Model) -> list[ir.Node]:
    return [n for n in model.graph if n.domain == DOMAIN and n.op_type != "BlockFp4MatMul"]


def _norm(emit: Emitter, x: ir.Value, scale: ir.Value | None, epsilon: float) -> ir.Value:
    dims = dims_of(x)
    return emit.op("norm", "RMSNormalization", [x, scale], dims, axis=-1, epsilon=epsilon)


def _head_norm(emit: Emitter, node: ir.Node) -> list[ir.Value]:
    x, scale = node.inputs
    heads, size = node.attributes.get_int("num_heads", 0), _width(node, x)
    split = emit.integers("split", [0, 0, heads, size // heads])
    by_head = emit.op("heads", "Reshape", [x, split], ["B", "S", heads, size // heads])
    normed = _norm(emit, by_head, scale, node.attributes.get_float("epsilon", 0.0))
    flat = emit.integers("merged", [0, 0, size])
    return [emit.op("out", "Reshape", [normed, flat], ["B", "S", size])]


def _head_concat(emit: Emitter, node: ir.Node) -> list[ir.Value]:
    heads, parts, total = node.attributes.get_int("num_heads", 0), [], 0
    counts = (1 if node.attributes.get_int("shared", 0) else heads, heads)
    for name, value, count in zip("ab", node.inputs, counts, strict=True):
        size = _width(node, value) // count
        split = emit.integers(f"split_{name}", [0, 0, count, size])
        part = emit.op(f"heads_{name}", "Reshape", [value, split], ["B", "S", count, size])
        if count < heads:
            each = emit.integers("each", [1, 1, heads, 1])
            part = emit.op("of_each", "Expand", [part, each], ["B", "S", heads, size])
        parts.append(part)
        total += size
    joined = emit.op("joined", "Concat", parts, ["B", "S", heads, total], axis=-1)
    flat = emit.integers("merged", [0, 0, heads * total])
    return [emit.op("out", "Reshape", [joined, flat], ["B", "S", heads * total])]


def _add_norm(emit: Emitter, node: ir.Node) -> list[ir.Value]:
    residual, x, scale = node.inputs
    total = emit.op("sum", "Add", [residual, x], dims_of(node.outputs[0]))
    return [total, _norm(emit, total, scale, node.attributes.get_float("epsilon", 0.0))]


def _gated(emit: Emitter, node: ir.Node) -> list[ir.Value]:
    (x,) = node.inputs
    size = _width(node, x) // 2
    dims = [*(dims_of(node.outputs[0]) or ["B", "S", size])[:-1], size]
    split = ir.Node(
        "",
        "Split",
        [x, emit.integers("halves", [size, size])],
        ir.convenience.convert_attributes({"axis": -1}),
        num_outputs=2,
        name=f"{node.name}.split",
    )
    for value, name in zip(split.outputs, ("gate", "up"), strict=True):
        value.name, value.type = f"{node.name}.{name}", ir.TensorType(ir.DataType.FLOAT)
        value.shape = ir.Shape(dims)
    emit.nodes.append(split)
    gate, up = split.outputs
    activation, attributes = str(attributes_of(node)["activation"]), node.attributes
    alpha, limit, shift = (attributes.get_float(k, float(v)) for k, v in GATE_DEFAULTS.items())
    if limit:
        least, most = _real(emit, "least", -limit), _real(emit, "most", limit)
        gate = emit.op("held_gate", "Min", [gate, most], dims)
        up = emit.op("held_up", "Clip", [up, least, most], dims)
    if shift:
        up = emit.op("shifted_up", "Add", [up, _real(emit, "up_shift", shift)], dims)
    if activation == "silu":
        inner = gate
        if alpha != 1:
            inner = emit.op("scaled", "Mul", [gate, _real(emit, "alpha", alpha)], dims)
        sigmoid = emit.op("sigmoid", "Sigmoid", [inner], dims)
        active = emit.op("active", "Mul", [gate, sigmoid], dims)
    else:
        how = "tanh" if activation == "gelu_tanh" else "none"
        active = emit.op("active", "Gelu", [gate], dims, approximate=how)
    return [emit.op("out", "Mul", [active, up], dims)]


def _real(emit: Emitter, label: str, number: float) -> ir.Value:
    return emit.constant(label, np.array(number, np.float32))


def _width(node: ir.Node, value: ir.Value | None) -> int:
    size = None if value is None else width(value)
    if size is None:
        raise UnsupportedError(
            "the width of the input is unknown", where=f"tensorrt backend, node {node.name}"
        )
    return size


_RULES: dict[str, Callable[[Emitter, ir.Node], list[ir.Value]]] = {
    "HeadRMSNorm": _head_norm,
    "HeadConcat": _head_concat,
    "AddRMSNorm": _add_norm,
    "GatedActivation": _gated,
    "BlockHadamard": block_hadamard,
}
