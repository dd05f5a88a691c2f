"""An engine that is not built: its weights and the costs of its steps, by legalization alone."""

from __future__ import annotations

import onnx_ir as ir

from optc.backend import BuildOptions
from optc.backends.onnxruntime.build import engine_spec, paged_spec
from optc.backends.onnxruntime.legalize import legalize, legalize_pages
from optc.backends.onnxruntime.legalize.pages import is_paged
from optc.proof.roofline.estimate import EngineEstimate
from optc.proof.roofline.graph_costs import attention_heads, graph_costs, stored_bytes
from optc.system.hardware.target import Target


def estimate_engine(model: ir.Model, target: Target, options: BuildOptions) -> EngineEstimate:
    """The engine that `optc.backends.onnxruntime.build.build_engine` would build.

    Raises:
        UnsupportedError: The model has what slots have no place for.
    """
    cuda = target.kind == "cuda"
    heads = attention_heads(model)
    if cuda and any(map(is_paged, model.graph)):
        legalize_pages(model, options.max_context + 1)
        spec = paged_spec(model, options)
    else:
        legalize(model, options.max_context + 1, half=cuda)
        spec = engine_spec(model, options)
    peak_of, floats = (_on_cuda, "fp16") if cuda else (_on_cpu, "fp32")
    return EngineEstimate(
        spec, stored_bytes(model), graph_costs(model, spec, heads, peak_of, floats)
    )


def _on_cpu(node: ir.Node) -> str:
    """MatMulNBits multiplies int8 (its accuracy level), there is no bfloat16."""
    return "int8" if node.op_type == "MatMulNBits" else "fp32"


def _on_cuda(node: ir.Node) -> str:
    """Integer weights are dequantized: all products are float16."""
    return "fp16"
