"""Factors of experts that are looked up by the experts that a token has chosen."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

#: The reference implementation raises these where shapes or types do not go together.
FAILURES = (ValueError, TypeError, IndexError, RuntimeError)


def factors_of(
    graph: ir.Graph, picked: ir.Value, experts: ir.Value, count: int
) -> npt.NDArray[np.float32] | None:
    """The factors f [E] if ``picked`` [T, k] is f[experts], however it is looked up; else None.

    The nodes in between are run: once on each expert, and on experts in another order, which tells
    a lookup from anything else that reads them.

    Args:
        graph: Has both.
        picked: Read by the weights.
        experts: i64 [T, k].
        count: The number of experts, E.
    """
    try:
        part = ir.convenience.extract(graph, [experts], [picked])
    except ValueError:  # it is made of something else
        return None
    evaluator = ReferenceEvaluator(ir.to_proto(ir.Model(part, ir_version=10)))
    chosen = part.outputs[0].shape
    top_k = chosen[-1] if chosen is not None and len(chosen) else 1
    rows = np.repeat(np.arange(count)[:, None], top_k if isinstance(top_k, int) else 1, 1)
    mixed = (rows * 5 + 3 + np.arange(rows.shape[1])) % count
    name = experts.name or ""
    try:
        (known,), (other,) = (evaluator.run(None, {name: one}) for one in (rows, mixed))
    except FAILURES:
        return None
    if known.shape != rows.shape or known.dtype != np.float32:
        return None
    factors = known[:, 0]
    same = np.array_equal(known, factors[rows]) and np.array_equal(other, factors[mixed])
    return factors if same else None
