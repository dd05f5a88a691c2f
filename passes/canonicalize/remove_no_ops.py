"""`remove-no-ops`: operators that give their operand back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import constant_ints, is_constant, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dataflow import (
    dims,
    operand,
    same_shape,
    scalar,
    substitute,
    uses,
)

_NEUTRAL = {"Mul": 1.0, "Div": 1.0, "Add": 0.0, "Sub": 0.0}


@dataclass(frozen=True)
class RemoveNoOps(Pass):
    """Operators without effect.

    1. ``Identity``, and ``Cast`` to the type its operand has.
    2. ``Slice`` of everything, ``Expand`` and ``Reshape`` to the shape that is there, ``Transpose``
       of no axis.
    3. ``x * 1``, ``x / 1``, ``x + 0``, ``x - 0``.
    4. ``Expand`` of a constant whose readers broadcast it themselves: sums, differences, products
       and quotients with a value of the expanded shape.
    """

    name: ClassVar[str] = "remove-no-ops"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in list(model.graph):
            source = _effectless(node)
            if source is not None and not _fixed(source, node):
                substitute(node.outputs[0], source)
                report.add(node.op_type.lower())
        remove_unused(model)
        return report


def _fixed(source: ir.Value, node: ir.Node) -> bool:
    """A graph's inputs and outputs keep their names: one cannot be the other."""
    bound = source.is_graph_input() or source.is_graph_output() or source.is_initializer()
    return bound and node.outputs[0].is_graph_output()


def _effectless(node: ir.Node) -> ir.Value | None:
    """The operand that ``node`` gives back unchanged, else None."""
    if is_op(node, "Identity"):
        return operand(node, 0)
    if is_op(node, "Cast"):
        same = node.attributes.get_int("to", 0) == operand(node, 0).dtype
        return operand(node, 0) if same else None
    if is_op(node, "Slice"):
        return operand(node, 0) if _takes_all(node) else None
    if is_op(node, "Transpose"):
        axes = list(node.attributes.get_ints("perm", ()))
        return operand(node, 0) if axes and axes == sorted(axes) else None
    if is_op(node, "Expand", "Reshape"):
        same = same_shape(operand(node, 0), node.outputs[0])
        return operand(node, 0) if same or _broadcast_by_readers(node) else None
    if is_op(node, *_NEUTRAL):
        return _neutral_operand(node)
    return None


def _broadcast_by_readers(node: ir.Node) -> bool:
    """Legal case 4."""
    result = node.outputs[0]
    if not is_op(node, "Expand") or not is_constant(operand(node, 0)) or result.is_graph_output():
        return False
    readers = uses(result)
    others = [[v for v in reader.inputs if v is not result] for reader in readers]
    return bool(readers) and all(
        is_op(reader, *_NEUTRAL)
        and len(other) == 1
        and other[0] is not None
        and same_shape(other[0], result)
        for reader, other in zip(readers, others, strict=True)
    )


def _takes_all(node: ir.Node) -> bool:
    """A Slice from 0 by 1 up to the size of the axis or beyond any, or by 1 of as much as there
    is."""
    starts, ends, axes, steps = (
        constant_ints(node.inputs[i]) if i < len(node.inputs) else None for i in (1, 2, 3, 4)
    )
    one_by_one = steps is not None and set(steps) == {1}
    if one_by_one and same_shape(operand(node, 0), node.outputs[0]):
        return True
    if starts is None or ends is None or any(starts) or any(s != 1 for s in steps or ()):
        return False
    shape = dims(operand(node, 0))
    endless = np.iinfo(np.int32).max
    for axis, end in zip(axes or range(len(ends)), ends, strict=True):
        size = shape[axis] if shape else None
        if end < (size if isinstance(size, int) else endless):
            return False
    return True


def _neutral_operand(node: ir.Node) -> ir.Value | None:
    """Legal case 3; the constant must not broadcast the operand to more axes."""
    positions = (0, 1) if node.op_type in ("Mul", "Add") else (1,)
    for position in positions:
        other = operand(node, 1 - position)
        neutral = scalar(node.inputs[position]) == _NEUTRAL[node.op_type]
        if neutral and same_shape(other, node.outputs[0]):
            return other
    return None
