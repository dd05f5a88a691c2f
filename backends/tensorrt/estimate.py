"""An engine that is not built: its weights and the costs of its steps, by legalization alone."""

from __future__ import annotations

import onnx_ir as ir

from optc.backend import BuildOptions
from optc.backends.tensorrt.build import engine_spec
from optc.backends.tensorrt.dialect import check_model
from optc.backends.tensorrt.legalize import legalize
from optc.backends.tensorrt.limits import slot_length
from optc.proof.roofline.estimate import EngineEstimate
from optc.proof.roofline.graph_costs import attention_heads, graph_costs, stored_bytes
from optc.system.hardware.target import Target

#: Ceilings of products of two operands of one type; of others they are those of floats.
_PEAKS = {
    ir.DataType.INT8: "int8",
    ir.DataType.FLOAT8E4M3FN: "fp8",
    ir.DataType.FLOAT4E2M1: "fp4",
}


def estimate_engine(model: ir.Model, target: Target, options: BuildOptions) -> EngineEstimate:
    """The engine that `optc.backends.tensorrt.build.build_engine` would build.

    Raises:
        UnsupportedError: The model has no form that TensorRT builds as it is meant.
    """
    heads = attention_heads(model)
    legalized = legalize(model, slot_length(options.max_context))
    check_model(model, [f"sm_{sm}" for sm in target.sm])
    spec = engine_spec(model, legalized, options)
    floats = "bf16" if legalized.dtype == "bfloat16" else "fp16"

    def peak_of(node: ir.Node) -> str:
        x, weight = (_quantized_type(value) for value in node.inputs[:2])
        return _PEAKS.get(weight, floats) if x is weight and weight is not None else floats

    return EngineEstimate(
        spec, stored_bytes(model), graph_costs(model, spec, heads, peak_of, floats)
    )


def _quantized_type(value: ir.Value | None) -> ir.DataType | None:
    """The type that a DequantizeLinear makes ``value`` from; None if there is none."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "DequantizeLinear" or node.inputs[0] is None:
        return None
    return node.inputs[0].dtype
