"""The costs of a step (`optc.proof.roofline.costs`), from the graph that an engine runs.

For engines over slots, whose graph is what legalization leaves: matmuls with constant weights, also
by experts, lookups in constant tables, and attention. Other operators cost nothing here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from optc.ir.experts import EXPERT_MATMULS
from optc.ir.functions import DOMAIN, is_op, operand
from optc.proof.roofline.costs import KernelCost, StepCosts, main_peak
from optc.runtime.executable.executable import StepInterface

#: Ceiling of a matmul's arithmetic, by the node (`KernelCost.peak`).
PeakOf = Callable[[ir.Node], str]
_MATMULS = ("MatMul", "FusedMatMul", "MatMulNBits")
_LOOKUPS = ("Gather", "GatherBlockQuantized")
#: What lies between stored weights and the matmul, without work of its own in a step.
_STORAGE = ("DequantizeLinear", "Cast", "Transpose", "Reshape", "Identity")
#: Input of the slot form that says whose logits are wanted.
_WANTED = "logit_index"


@dataclass
class _Total:
    calls: int = 0
    bytes: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    ops: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


def attention_heads(step: ir.Model) -> list[int]:
    """Query heads of each attention of a ragged step, in order of its layers."""
    names = ("PagedAttention", "RotaryPagedAttention")
    nodes = [n for n in step.graph if n.domain == DOMAIN and n.op_type in names]
    nodes.sort(key=lambda node: node.attributes.get_int("layer", 0))
    return [node.attributes.get_int("num_heads", 0) for node in nodes]


def stored_bytes(model: ir.Model) -> int:
    """Bytes of all weights and constants of a graph."""
    tensors = (value.const_value for value in model.graph.initializers.values())
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def graph_costs(
    model: ir.Model, spec: StepInterface, heads: Sequence[int], peak_of: PeakOf, attention: str
) -> StepCosts:
    """Costs of a step.

    Args:
        model: A slot form, legalized.
        spec: Of its engine, with one KV group.
        heads: Query heads by layer (`attention_heads`).
        peak_of: The ceiling of each matmul.
        attention: The ceiling of attention.
    """
    behind = _behind(model, _WANTED)
    totals: defaultdict[tuple[str, str], _Total] = defaultdict(_Total)
    for node in model.graph:
        rows = "R" if node in behind else "T"
        if node.op_type in _MATMULS and (found := _weights(node, 1)):
            total = totals["matmul", peak_of(node)]
            total.calls += 1
            total.bytes["1"] += sum(size for _, size in found)
            total.ops[rows] += 2 * _products(node, found)
        elif is_op(node, *EXPERT_MATMULS, domain=DOMAIN):
            _add_experts(totals["experts", peak_of(node)], node, rows)
        elif node.op_type in _LOOKUPS and (found := _weights(node, 0)):
            total = totals["lookup", attention]
            total.calls += 1
            total.bytes[rows] += sum(size for _, size in found) / _table_rows(node)
    total = totals["attention", attention]
    for layer, count in zip(spec.layers, heads, strict=True):
        total.calls += 1
        total.bytes["kv0"] += layer.bytes_per_token
        total.ops["pairs0"] += 2 * count * (layer.key_dim + layer.value_dim)
    kernels = {
        f"{name} {peak}": KernelCost(one.calls, peak, dict(one.bytes), dict(one.ops))
        for (name, peak), one in totals.items()
    }
    return StepCosts(main_peak(kernels), kernels)


def _add_experts(total: _Total, node: ir.Node, rows: str) -> None:
    """A matmul by experts reads those that its rows choose: ``T:2of8`` of them, 2 a row."""
    count, experts = node.attributes.get_int("num_experts", 1), operand(node, "experts")
    weight = operand(node, "weight")
    shape = None if experts is None else experts.shape
    chosen = shape[-1] if shape is not None and isinstance(shape[-1], int) else count
    tensors = [v.const_value for v in node.inputs if v is not None and v.const_value is not None]
    total.calls += 1
    total.bytes[f"{rows}:{chosen}of{count}"] += sum(one.nbytes for one in tensors) / count
    if weight is not None and weight.const_value is not None:
        total.ops[rows] += 2 * chosen * _elements(weight.const_value.shape) / count


def _behind(model: ir.Model, name: str) -> set[ir.Node]:
    """Nodes that depend on the input ``name``."""
    reached = {value for value in model.graph.inputs if value.name == name}
    found = set()
    for node in model.graph:
        if any(value in reached for value in node.inputs):
            found.add(node)
            reached.update(node.outputs)
    return found


def _weights(node: ir.Node, at: int) -> list[tuple[int, float]]:
    """Elements and bytes of each constant that input ``at`` and those behind it are made of; none
    if the input is computed."""
    first = list(_constants(node.inputs[at]))
    if not first:
        return []
    fused = node.op_type in ("MatMulNBits", "GatherBlockQuantized")
    more = node.inputs[at + 1 :] if fused else ()
    return first + [one for value in more for one in _constants(value)]


def _constants(value: ir.Value | None) -> Iterator[tuple[int, float]]:
    if value is None:
        return
    tensor = value.const_value
    if tensor is not None:
        yield _elements(tensor.shape), float(tensor.nbytes)
        return
    node = value.producer()
    if node is None or node.op_type not in _STORAGE:
        return
    read = node.inputs if node.op_type == "DequantizeLinear" else node.inputs[:1]
    for given in read:
        for elements, size in _constants(given):
            # what is cast when an engine is loaded is read in the type that it was cast to
            wide = node.op_type == "Cast" and value.dtype is not None
            yield elements, elements * value.dtype.itemsize if wide and value.dtype else size


def _products(node: ir.Node, weights: list[tuple[int, float]]) -> int:
    """Multiply-adds of a row: K N. Packed weights have fewer elements than values."""
    packed = node.attributes.get_int("K", 0) * node.attributes.get_int("N", 0)
    return packed or max(elements for elements, _ in weights)


def _table_rows(node: ir.Node) -> int:
    value = node.inputs[0]
    while value is not None and value.const_value is None:
        producer = value.producer()
        value = None if producer is None else producer.inputs[0]
    if (
        value is None
        or value.const_value is None
        or not isinstance(value.const_value.shape[0], int)
    ):
        raise ValueError(f"{node.name}: the table has no static shape")
    return value.const_value.shape[0]


def _elements(shape: ir.Shape | ir.ShapeProtocol) -> int:
    return math.prod(dim for dim in shape if isinstance(dim, int))
