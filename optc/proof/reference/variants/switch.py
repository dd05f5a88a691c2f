"""Values that only some variants compute otherwise: x + switch · (other - x).

A switch is a weight of one value, 0, which `optc.proof.reference.variants.measure` puts 1 into: so
many variants share one run of a model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from optc.ir.weights import LazyWeight, as_lazy


def switch_on() -> LazyWeight:
    """The weight of a variant that computes ``other``."""
    return _single(1.0)


def add_switch(
    graph: ir.Graph, before: ir.Node, x: ir.Value, makes: Sequence[ir.Node], other: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Make the choice between a value and another one; readers are left as they are.

    Args:
        graph: Gets the nodes and the switch.
        before: The node that they are put before.
        x: The value.
        makes: Nodes that make ``other`` of it, in order; they are in no graph yet.
        other: A value of the same shape.

    Returns:
        The switch, an initializer; and what is to be read for ``x``.
    """
    switch = ir.Value(name=f"{x.name}.switch", type=ir.TensorType(ir.DataType.FLOAT))
    switch.const_value = weight = _single(0.0).transpose()
    switch.shape = ir.Shape(weight.shape.numpy())
    graph.register_initializer(switch)
    error = ir.node("Sub", [other, x])
    switched = ir.node("Mul", [error.outputs[0], switch])
    read = ir.node("Add", [x, switched.outputs[0]])
    graph.insert_before(before, [*makes, error, switched, read])
    chosen = read.outputs[0]
    chosen.type, chosen.shape = x.type, x.shape
    return switch, chosen


def _single(value: float) -> LazyWeight:
    """A weight of one value, by rows."""
    return as_lazy(ir.tensor(np.full((1, 1), value, np.float32), name="switch"))
