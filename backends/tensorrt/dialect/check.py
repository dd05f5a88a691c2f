"""Check a model against the dialect (`operators`), node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import onnx_ir as ir

from optc.backends.tensorrt.dialect import attention, block_fp4, kv_cache, quantization
from optc.backends.tensorrt.dialect.operators import NATIVE, REFUSED, STANDARD, Rule
from optc.errors import UnsupportedError

#: Versions of the standard operators that the parser implements.
OPSETS = range(21, 25)
#: Domain of TensorRT's own operators.
NATIVE_DOMAIN = "trt"
#: Problems that a message names.
_NAMED = 5

#: ``check(node)`` gives what is wrong with it.
NodeCheck = Callable[[ir.Node], Iterator[str]]
_CHECKS: dict[str, NodeCheck] = {
    "Attention": attention.check_attention,
    "TensorScatter": kv_cache.check_tensor_scatter,
    "ScatterND": kv_cache.check_scatter,
    "ScatterElements": kv_cache.check_scatter,
    "DequantizeLinear": quantization.check_dequantize,
    "QuantizeLinear": quantization.check_quantize,
    "Gather": quantization.check_gather,
    "MatMul": block_fp4.check_matmul,
}
_NATIVE_CHECKS: dict[str, NodeCheck] = {
    "TRT_FP4DynamicQuantize": block_fp4.check_quantize_fp4,
}
#: Least compute capability that has kernels for a type.
_NEEDS = {
    ir.DataType.BFLOAT16: 80,
    ir.DataType.FLOAT8E4M3FN: 89,
    ir.DataType.FLOAT4E2M1: 100,
}


def check_model(model: ir.Model, architectures: Sequence[str]) -> None:
    """Refuse a model that TensorRT would not build as it is meant.

    Args:
        model: What the parser would get.
        architectures: GPUs that the engine is for (``sm_89``), all of them.

    Raises:
        UnsupportedError: Names the first few nodes and what is wrong with each.
    """
    found = list(problems(model, architectures))
    if not found:
        return
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    raise UnsupportedError(
        "; ".join(found[:_NAMED]) + more,
        where="tensorrt backend",
        hint="TensorRT's parser would refuse these, or take them for something else",
    )


def problems(model: ir.Model, architectures: Sequence[str]) -> Iterator[str]:
    """The parts of a model that TensorRT would not build as meant, one sentence each."""
    opset = model.opset_imports.get("")
    if opset not in OPSETS:
        yield (
            f"the model uses opset {opset}: the parser takes newer ones and ignores what is new in"
            f" them; {OPSETS[0]} to {OPSETS[-1]} are known"
        )
    names: set[str] = set()
    for node in model.graph.all_nodes():
        label = f"{node.op_type} {node.name or '(unnamed)'}"
        if not node.name or node.name in names:
            yield f"{label}: the layer table needs a unique name for every node"
        names.add(node.name or "")
        yield from (f"{label}: {problem}" for problem in node_problems(node))
    yield from _type_problems(model, architectures)


def node_problems(node: ir.Node) -> Iterator[str]:
    """Problems of one node, whatever the GPU."""
    rule = _rule_of(node)
    if rule is None:
        reason = REFUSED.get(node.op_type, "it is not known to be built as meant")
        yield f"{node.domain + '::' if node.domain else ''}{node.op_type} is refused: {reason}"
        return
    yield from _attribute_problems(node, rule)
    given = len(node.inputs) - _trailing_absent(node)
    if given > rule.inputs:
        yield f"input {rule.inputs} would be dropped: TensorRT reads {rule.inputs} inputs"
    if len(node.outputs) > rule.outputs:
        yield f"it has {len(node.outputs)} outputs, TensorRT gives {rule.outputs}"
    check = (_NATIVE_CHECKS if node.domain else _CHECKS).get(node.op_type)
    if check is not None:
        yield from check(node)


def _rule_of(node: ir.Node) -> Rule | None:
    if node.domain == NATIVE_DOMAIN:
        return NATIVE.get(node.op_type)
    return STANDARD.get(node.op_type) if not node.domain else None


def _attribute_problems(node: ir.Node, rule: Rule) -> Iterator[str]:
    for name, attribute in node.attributes.items():
        if name in rule.fixed:
            if attribute.value != rule.fixed[name]:
                yield f"{name}={attribute.value} is not implemented, only {rule.fixed[name]}"
        elif name not in rule.attributes:
            yield f"the attribute {name} would be ignored"


def _trailing_absent(node: ir.Node) -> int:
    count = 0
    for value in reversed(node.inputs):
        if value is not None:
            break
        count += 1
    return count


def _type_problems(model: ir.Model, architectures: Sequence[str]) -> Iterator[str]:
    """Types that some of the GPUs have no kernels for; one of them fails the whole build."""
    used: dict[ir.DataType, str] = {}
    for value in _values(model.graph):
        if value.dtype is not None and value.dtype not in used:
            used[value.dtype] = value.name or ""
    for dtype, name in used.items():
        reason = no_kernels(dtype, architectures)
        if reason:
            yield f"{name}: {reason}"


def no_kernels(dtype: ir.DataType, architectures: Sequence[str]) -> str:
    """Why some of the GPUs cannot compute with a type; empty if all can."""
    least = _NEEDS.get(dtype, 0)
    lacking = [one for one in architectures if int(one.removeprefix("sm_")) < least]
    if not lacking:
        return ""
    kind = dtype.name.lower()
    return f"{kind} has no kernels on {', '.join(lacking)}, only from sm_{least} on"


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
