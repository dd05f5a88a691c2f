"""`fold-recurrences`: heads around linear attention are folded into the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op, make_node
from optc.ir.graph import add_initializer, constant, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.weights import LazyWeight
from optc.passes.canonicalize.dataflow import (
    axis_of,
    dims,
    emit,
    insert,
    miss,
    operand,
    producer,
    substitute,
)
from optc.passes.canonicalize.fold_tokens import ANY_RANK

_CAPTURED = ("LinearAttention", "SelectiveScan")


@dataclass(frozen=True)
class _Folded:
    """A value [B, S, n, d], or [B*S*n, d], with its heads in the last axis."""

    value: ir.Value
    heads: int
    size: int


@dataclass(frozen=True)
class FoldRecurrences(Pass):
    """``Reshape [B, S, n*d] -> [B, S, n, d]``, linear attention and what goes on by heads behind
    it, ``Reshape`` back.

    1. ``Reshape`` that splits heads off, or puts all heads of all tokens into one axis, [B*S*n, d],
       falls away.
    2. Linear attention as it was captured, of split heads, becomes ``optc::LinearAttention``, and
       so does a selective scan, of one head.
    3. ``RMSNormalization`` of heads becomes ``optc::HeadRMSNorm``; element-wise operators of values
       that are split alike, or of constants of each head or number, work on [B, S, n*d].
    4. ``Reshape`` to [B, S, n*d] falls away.
    Operators that do anything else keep reading split heads.
    """

    name: ClassVar[str] = "fold-recurrences"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place, if it has linear attention; these are counted."""
        report = PassReport()
        if not any(is_op(node, *_CAPTURED, domain=DOMAIN) for node in model.graph):
            return report
        folded: dict[ir.Value, _Folded] = {}
        for node in list(model.graph):
            if is_op(node, "Reshape"):
                _reshape(node, folded)
            elif is_op(node, "LinearAttention", domain=DOMAIN):
                _attend(model, node, folded, report)
            elif is_op(node, "SelectiveScan", domain=DOMAIN):
                _scan(model, node, report)
            elif any(value in folded for value in node.inputs if value is not None):
                _follow(model, node, folded)
        remove_unused(model)
        return report


def _reshape(node: ir.Node, folded: dict[ir.Value, _Folded]) -> None:
    """Cases 1 and 4."""
    source, result = operand(node, 0), node.outputs[0]
    known, wanted = folded.get(source), dims(result)
    if known is None:
        split = _split(dims(source), wanted)
        if split is not None:
            folded[result] = _Folded(source, *split)
    elif wanted == dims(known.value):
        substitute(result, known.value)
    elif len(wanted) == 2 and wanted[1] == known.size:
        folded[result] = known
    elif len(wanted) == 4 and wanted[:2] == dims(known.value)[:2]:
        heads, size = wanted[2:]
        if isinstance(heads, int) and isinstance(size, int):
            folded[result] = _Folded(known.value, heads, size)


def _split(whole: list[int | str | None], wanted: list[int | str | None]) -> tuple[int, int] | None:
    """Heads and their size, if a ``Reshape`` of the first shape to the second splits them off."""
    if len(whole) != 3 or not isinstance(whole[2], int):
        return None
    size = wanted[-1] if wanted else None
    by_token = len(wanted) == 4 and wanted[:2] == whole[:2] and isinstance(wanted[2], int)
    if not (by_token or len(wanted) == 2) or not isinstance(size, int) or whole[2] % size:
        return None
    return whole[2] // size, size


def _attend(
    model: ir.Model, node: ir.Node, folded: dict[ir.Value, _Folded], report: PassReport
) -> None:
    """Case 2."""
    if "num_heads" in node.attributes:
        return
    parts = [folded.get(operand(node, index)) for index in range(3)]
    q, k, v = parts
    if q is None or k is None or v is None or v.heads % k.heads:
        miss(report, node, "heads of linear attention that no reshape of a projection gives")
        return
    attributes = {
        "num_heads": v.heads,
        "key_heads": k.heads,
        "key_dim": k.size,
        "value_dim": v.size,
        "delta": node.attributes.get_int("delta", 0),
        "scale": node.attributes.get_float("scale", 1.0),
    }
    decay, by_key = operand(node, 3), folded.get(operand(node, 3))
    if by_key is not None and (by_key.heads, by_key.size) == (v.heads, k.size):
        decay, attributes["decays"] = by_key.value, k.size
    elif len(dims(decay)) != len(dims(v.value)):
        miss(report, node, "decays of keys that no reshape gives")
        return
    inputs = [q.value, k.value, v.value, decay, operand(node, 4)]
    new = make_node(model, "LinearAttention", inputs, attributes, name=node.name)
    new.outputs[0].shape = ir.Shape(dims(v.value))
    insert(node, new)
    folded[node.outputs[0]] = _Folded(new.outputs[0], v.heads, v.size)
    report.add("linear attention")


def _scan(model: ir.Model, node: ir.Node, report: PassReport) -> None:
    """Case 2, of q and k [B, S, N], v and decay [B, S, C] and rates [N, C]."""
    q, k, v, decay, rates = (operand(node, index) for index in range(5))
    keys, values = dims(q)[-1], dims(v)[-1]
    if not isinstance(keys, int) or not isinstance(values, int) or dims(rates) != [keys, values]:
        miss(report, node, "a selective scan whose sizes are not known")
        return
    sizes = {"num_heads": 1, "key_heads": 1, "key_dim": keys, "value_dim": values}
    inputs = [q, k, v, decay, None, rates]
    attributes = {**sizes, "delta": 0, "scale": 1.0}
    new = make_node(model, "LinearAttention", inputs, attributes, name=node.name)
    new.outputs[0].shape = ir.Shape(dims(v))
    insert(node, new)
    substitute(node.outputs[0], new.outputs[0])
    report.add("selective scan")


def _follow(model: ir.Model, node: ir.Node, folded: dict[ir.Value, _Folded]) -> None:
    """Case 3."""
    known = next(folded[value] for value in node.inputs if value in folded)
    new: ir.Value | None = None
    if is_op(node, "RMSNormalization"):
        new = _norm(model, node, known)
    elif not node.domain and node.op_type in ANY_RANK - {"MatMul"}:
        new = _element_wise(model.graph, node, known, folded)
    if new is not None:
        folded[node.outputs[0]] = _Folded(new, known.heads, known.size)


def _norm(model: ir.Model, node: ir.Node, known: _Folded) -> ir.Value | None:
    scale = operand(node, 1)
    last = axis_of(node, operand(node, 0), -1) == len(dims(operand(node, 0))) - 1
    if not last or dims(scale) != [known.size]:
        return None
    attributes = {"num_heads": known.heads, "epsilon": node.attributes.get_float("epsilon", 1e-5)}
    new = make_node(model, "HeadRMSNorm", [known.value, scale], attributes, name=node.name)
    new.outputs[0].shape = ir.Shape(dims(known.value))
    insert(node, new)
    return new.outputs[0]


def _element_wise(
    graph: ir.Graph, node: ir.Node, known: _Folded, folded: dict[ir.Value, _Folded]
) -> ir.Value | None:
    inputs: list[ir.Value | None] = []
    for value in node.inputs:
        split = folded.get(value) if value is not None else None
        if value is None:
            inputs.append(None)
        elif split is not None and (split.heads, split.size) == (known.heads, known.size):
            inputs.append(split.value)
        elif split is None and (number := _of_heads(graph, value, known)) is not None:
            inputs.append(number)
        else:
            return None
    attributes = {name: each.value for name, each in node.attributes.items()}
    return emit(node, node.op_type, inputs, node.outputs[0], attributes, dims(known.value))


def _of_heads(graph: ir.Graph, value: ir.Value, known: _Folded) -> ir.Value | None:
    """A constant that broadcasts to [n, d] as [n * d], or one number as it is."""
    shape = tuple(int(str(size)) for size in dims(value) if isinstance(size, int))
    source: ir.Value = value
    while (before := producer(source, "Unsqueeze", "Reshape", "Identity")) is not None:
        source = operand(before, 0)
    tensor = constant(source)
    if tensor is None or len(shape) != len(dims(value)):
        return None
    if all(size == 1 for size in shape):
        return value if len(shape) <= 1 else None
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) > 2 or any(
        size not in (1, whole)
        for size, whole in zip(reversed(shape), (known.size, known.heads), strict=False)
    ):
        return None

    def read() -> np.ndarray:
        array = np.broadcast_to(tensor.numpy().reshape(shape), (known.heads, known.size))
        return np.ascontiguousarray(array).reshape(-1)

    name = f"{source.name}.heads"
    whole = (known.heads * known.size,)
    if isinstance(tensor, LazyWeight):
        lazy = LazyWeight(lambda start, stop: read()[start:stop], whole, tensor.dtype, name)
        return add_initializer(graph, lazy, name)
    return add_initializer(graph, ir.tensor(read(), name=name), name)
