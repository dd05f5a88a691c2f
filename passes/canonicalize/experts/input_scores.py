"""Rows of all experts that are a token's row times a score of each expert: these, by probing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from optc.ir.functions import is_op
from optc.ir.graph import constant_ints
from optc.ir.linear import linear_of
from optc.passes.canonicalize.dataflow import dims, operand, scalar
from optc.passes.canonicalize.experts.all_experts import ForeignExpertsError
from optc.passes.canonicalize.experts.factors import FAILURES
from optc.passes.canonicalize.experts.find_router import rows_of
from optc.passes.canonicalize.experts.routing import (
    Float32,
    Hints,
    Index,
    Routing,
    probes,
    recognize,
)

#: Rows that are run at once: each becomes one for every expert.
_AT_ONCE = 8
#: More nodes than lie between a row and its copies.
_MOST_NODES = 60
#: Constants of more elements are weights.
_FEW = 64
_SCORINGS = ("sigmoid", "softmax", "softmax_after")


@dataclass(frozen=True)
class ScaledRows:
    """Rows [E, T, K] and what they are made of.

    Attributes:
        x: [T, K].
        logits: [T, E], of a linear layer over x.
        given: [E, T, K].
        nodes: What lies between.
    """

    x: ir.Value
    logits: ir.Value
    given: ir.Value
    nodes: tuple[ir.Node, ...]


def scaled_rows(graph: ir.Graph, given: ir.Value) -> ScaledRows:
    """The sources of ``given`` [E, T, K].

    Raises:
        ForeignExpertsError: It is made of more than rows and one linear layer over them.
    """
    logits = _nearest_logits(given)
    linear = linear_of(logits)
    if linear is None or dims(linear.x)[-1:] != dims(given)[-1:]:
        raise ForeignExpertsError("its scores and its rows are made of different values")
    between: set[ir.Node] = set()
    stack = [given]
    while stack:
        value = stack.pop()
        node = value.producer()
        if value in (logits, linear.x) or node in between:
            continue
        if node is None:
            if value.const_value is None or value.const_value.size > _FEW:
                raise ForeignExpertsError(f"its rows are made of {value.name}")
            continue
        between.add(node)
        if not is_op(node, "Shape"):
            stack += [v for v in node.inputs if v is not None]
        if len(between) > _MOST_NODES:
            raise ForeignExpertsError("its rows are made of more than rows and scores of experts")
    return ScaledRows(linear.x, logits, given, tuple(n for n in graph if n in between))


def _nearest_logits(given: ir.Value) -> ir.Value:
    """The nearest value before ``given`` [E, T, K] that a linear layer gives for E experts.

    Raises:
        ForeignExpertsError: There is none.
    """
    front, seen = [given], {given}
    for _ in range(_MOST_NODES):
        for value in front:
            if dims(value)[-1:] == dims(given)[:1] and linear_of(value) is not None:
                return value
        nodes = [node for value in front if (node := value.producer()) is not None]
        front = [v for node in nodes for v in node.inputs if v is not None and v not in seen]
        front = list(dict.fromkeys(front))
        seen.update(front)
    raise ForeignExpertsError("no linear layer gives its scores")


def routing_of(model: ir.Model, rows: ScaledRows) -> Routing:
    """The configuration of ``optc::TopKRouter`` that gives the scores of the experts that a row is
    not zero for.

    Raises:
        ForeignExpertsError: There is none, or rows are no multiples of a token's.
    """
    wide = int(dims(rows.logits)[-1] or 0)
    run = _Scores(model, rows)
    chosen = np.count_nonzero(run.scores(probes(wide, 1)[0][0]), axis=-1)
    if chosen.min() != chosen.max():
        raise ForeignExpertsError("how many experts a row is not zero for differs")
    numbers = [
        n
        for node in rows.nodes
        if is_op(node, "Add", "Mul", "Div", "Max", "Clip")
        for value in node.inputs
        if (n := scalar(value)) is not None and math.isfinite(n)
    ]
    counts = [n for node in rows.nodes if is_op(node, "TopK") for n in _ints(node)]
    hints = Hints(int(chosen[0]), wide, _SCORINGS, numbers, counts, biased=False)
    found = recognize(run.route, hints)
    if found is None:
        raise ForeignExpertsError("no configuration of optc::TopKRouter gives its scores")
    return found


def _ints(node: ir.Node) -> list[int]:
    return constant_ints(node.inputs[1]) or []


class _Scores:
    """Runs what scales rows, in the reference implementation of ONNX.

    Args:
        model: Has it.
        rows: Which part of the model that is.
    """

    def __init__(self, model: ir.Model, rows: ScaledRows) -> None:
        own = {value for node in rows.nodes for value in node.outputs} | {rows.x, rows.logits}
        shapes = dict.fromkeys(operand(n, 0) for n in rows.nodes if is_op(n, "Shape"))
        self._shaped = [value for value in shapes if value not in own]
        self._width = int(dims(rows.x)[-1] or 0)
        try:
            given = [rows.x, rows.logits, *self._shaped]
            part = ir.convenience.extract(model.graph, given, [rows.given])
        except ValueError as error:
            raise ForeignExpertsError(str(error)) from error
        self._names = [value.name or "" for value in part.inputs]
        self._kinds = [value.dtype or ir.DataType.FLOAT for value in part.inputs]
        proto = ir.to_proto(ir.Model(part, ir_version=model.ir_version))
        self._evaluator = ReferenceEvaluator(proto)
        self._rng = np.random.default_rng(0)

    def scores(self, logits: Float32) -> Float32:
        """The scores [T, E] that rows are multiplied by.

        Raises:
            ForeignExpertsError: They are no multiples, or cannot be computed.
        """
        parts = [
            self._few(logits[first : first + _AT_ONCE]) for first in range(0, len(logits), _AT_ONCE)
        ]
        return np.concatenate(parts)

    def route(self, logits: Float32, _: Float32) -> tuple[Float32, Index]:
        """Weights and experts [T, k]."""
        scores = self.scores(logits)
        experts = np.nonzero(scores)[1].reshape(len(scores), -1)
        return np.take_along_axis(scores, experts, -1), experts

    def _few(self, logits: Float32) -> Float32:
        # powers of two: products by them are exact
        shape = (len(logits), self._width)
        x = self._rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], shape).astype(np.float32)
        feeds = dict(zip(self._names, [x, logits], strict=False))
        for name, kind, value in zip(self._names[2:], self._kinds[2:], self._shaped, strict=True):
            feeds[name] = np.zeros(rows_of(dims(value), len(logits)), kind.numpy())
        try:
            (found,) = self._evaluator.run(None, feeds)
        except FAILURES as error:
            raise ForeignExpertsError(f"its rows cannot be computed: {error}") from error
        scores: Float32 = found[:, :, 0].T / x[:, :1]
        if not np.array_equal(found, scores.T[:, :, None] * x):
            raise ForeignExpertsError("rows are no multiples of a token's row")
        return scores
