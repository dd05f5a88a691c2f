"""`find-router`: what chooses the experts of a token becomes ``optc::TopKRouter``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from optc.ir.expert_rows import expert_vector, scale_experts
from optc.ir.experts import find_expert_linear
from optc.ir.functions import DOMAIN, is_op, make_node
from optc.ir.graph import add_initializer, constant, constant_ints, remove_unused
from optc.ir.linear import linear_of
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.weights import as_lazy
from optc.passes.canonicalize.dataflow import (
    dims,
    miss,
    operand,
    orders,
    producer,
    rank,
    scalar,
    substitute,
)
from optc.passes.canonicalize.experts.factors import FAILURES, factors_of
from optc.passes.canonicalize.experts.routing import Float32, Hints, Index, recognize

#: More nodes than any router has.
_MOST_NODES = 60
_SCORINGS = ("softmax", "softmax_after", "sigmoid", "sigmoid_after", "sparse_mixer")
#: Operators whose constants are scales and epsilons, and those whose constants are thresholds.
_ARITHMETIC = ("Add", "Mul", "Div", "Max", "Clip")
_COMPARISONS = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")


class _UnknownRouterError(Exception):
    """Why a router is not recognized; the message is the reason."""


@dataclass(frozen=True)
class _Router:
    """The part of a graph that makes experts and weights from the logits of a linear layer.

    Attributes:
        logits: [T, E].
        bias: A constant of E elements that it reads; None if there is none.
        weights: [T, k].
        experts: i32 [T, k].
        nodes: What lies between.
        shaped: Other values of which it reads no more than the shape.
    """

    logits: ir.Value
    bias: ir.Value | None
    weights: ir.Value
    experts: ir.Value
    nodes: tuple[ir.Node, ...]
    shaped: tuple[ir.Value, ...]


@dataclass(frozen=True)
class FindRouter(Pass):
    """Whatever lies between a linear layer and the experts and weights of ``optc::ExpertMatMul``
    and ``optc::CombineExperts``, if it computes what one configuration of ``optc::TopKRouter``
    does: it is run on probes (`optc.passes.canonicalize.experts.routing`). A factor of each expert
    that the weights are multiplied by goes into the rows of the last matmul by experts.
    """

    name: ClassVar[str] = "find-router"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in [n for n in model.graph if is_op(n, "CombineExperts", domain=DOMAIN)]:
            if is_op(operand(node, 1).producer(), "TopKRouter", domain=DOMAIN):
                continue
            _fold_factors(model.graph, node, report)
            try:
                _replace(model, _router_of(model.graph, node), node, report)
            except _UnknownRouterError as reason:
                miss(report, node, f"not a router I know: {reason}")
        remove_unused(model)
        return report


def _fold_factors(graph: ir.Graph, combine: ir.Node, report: PassReport) -> None:
    """Take ``factors[experts]`` out of the weights, into the rows of what is combined."""
    product = producer(combine.inputs[1], "Mul")
    last = find_expert_linear(operand(combine, 0).producer())
    if product is None or last is None:
        return
    own = [v for v in (last.linear.initializer, last.linear.bias) if v is not None]
    if any(len(value.uses()) != 1 for value in own):
        return
    chosen = producer(last.experts, "Cast")
    for weights, picked in orders(product):
        if chosen is None:
            return
        factors = factors_of(graph, picked, operand(chosen, 0), last.num_experts)
        if factors is None:
            continue
        for value in own:
            if (rows := value.const_value) is not None:
                weight = as_lazy(rows, transposed=len(rows.shape) == 2)
                value.const_value = scale_experts(weight, as_lazy(ir.tensor(factors)))
        combine.replace_input_with(1, weights)
        report.add("factors of experts in their weights")
        return


def _router_of(graph: ir.Graph, combine: ir.Node) -> _Router:
    """The router whose weights ``combine`` reads."""
    weights, experts = operand(combine, 1), _experts_of(operand(combine, 0))
    between: set[ir.Node] = set()
    ends: dict[ir.Value, None] = {}
    vectors: dict[ir.Value, None] = {}
    stack = [weights, experts]
    while stack:
        value = stack.pop()
        node = value.producer()
        if linear_of(value) is not None:
            ends[value] = None
        elif node is None:
            if constant(value) is None:
                raise _UnknownRouterError(f"it reads the input {value.name}")
            vectors[value] = None
        elif node not in between:
            between.add(node)
            if not is_op(node, "Shape"):
                stack.extend(v for v in node.inputs if v is not None)
            if len(between) > _MOST_NODES:
                raise _UnknownRouterError("no linear layer gives its logits")
    if len(ends) != 1:
        raise _UnknownRouterError(f"{len(ends)} linear layers give its logits")
    logits = next(iter(ends))
    count = dims(logits)[-1]
    biases = [v for v in vectors if _is_vector(v, count)]
    if len(biases) > 1:
        raise _UnknownRouterError(f"it reads {len(biases)} vectors of {count} elements")
    nodes = tuple(node for node in graph if node in between)
    shaped = dict.fromkeys(operand(node, 0) for node in nodes if is_op(node, "Shape"))
    outside = tuple(v for v in shaped if v is not logits and v.producer() not in between)
    return _Router(logits, biases[0] if biases else None, weights, experts, nodes, outside)


def _experts_of(value: ir.Value) -> ir.Value:
    """The indices that the matmul by experts behind ``value`` reads."""
    stack, seen = [value], {value}
    while stack:
        node = stack.pop().producer()
        if node is not None and is_op(node, "ExpertMatMul", domain=DOMAIN):
            return operand(node, 1)
        for given in node.inputs if node is not None else ():
            if given is not None and given not in seen:
                seen.add(given)
                stack.append(given)
    raise _UnknownRouterError("no matmul by experts gives the results that are combined")


def _is_vector(value: ir.Value, count: int | str | None) -> bool:
    tensor = constant(value)
    return tensor is not None and tensor.size == count and tensor.dtype == ir.DataType.FLOAT


def _replace(model: ir.Model, router: _Router, combine: ir.Node, report: PassReport) -> None:
    found = recognize(_Probe(model, router).run, _hints(router))
    if found is None:
        raise _UnknownRouterError("no configuration of optc::TopKRouter gives what it gives")
    bias = _flat(model.graph, router.bias) if found.corrected and router.bias else None
    new = make_node(
        model,
        "TopKRouter",
        [router.logits, bias],
        found.attributes(),
        name=f"{combine.name}.router",
    )
    source = router.logits.producer()
    if source is None:
        raise ValueError(f"{router.logits.name}: no linear layer gives it")
    model.graph.insert_after(source, [new])
    for old, value in zip((router.weights, router.experts), new.outputs, strict=True):
        value.shape = ir.Shape([*dims(router.logits)[:-1], found.top_k])
        substitute(old, value)
    report.add(_label(found.scoring, found.groups, found.corrected))


def _label(scoring: str, groups: int, corrected: bool) -> str:
    parts = [scoring, *(["corrected"] if corrected else [])]
    return ", ".join([*parts, *([f"{groups} groups"] if groups > 1 else [])])


def _flat(graph: ir.Graph, bias: ir.Value) -> ir.Value:
    """The bias as a vector [E]."""
    tensor = constant(bias)
    if tensor is None or len(tensor.shape) == 1:
        return bias
    flat = expert_vector(as_lazy(tensor)) if len(tensor.shape) == 2 else None
    if flat is None:
        raise _UnknownRouterError(f"its bias has shape {dims(bias)}")
    return add_initializer(graph, flat, f"{bias.name}.vector")


def _hints(router: _Router) -> Hints:
    wide, top_k = dims(router.logits)[-1], dims(router.experts)[-1]
    if not isinstance(wide, int) or not isinstance(top_k, int):
        raise _UnknownRouterError("how many experts there are and are chosen is no constant")
    return Hints(
        top_k,
        wide,
        tuple(dict.fromkeys([*_scorings(router, wide), *_SCORINGS])),
        tuple(dict.fromkeys(_numbers(router, _ARITHMETIC))),
        tuple(dict.fromkeys(_counts(router))),
        router.bias is not None,
        tuple(dict.fromkeys(_numbers(router, _COMPARISONS))),
    )


def _scorings(router: _Router, wide: int) -> Iterator[str]:
    """The scorings that the router's operators hint at."""
    for node in router.nodes:
        if is_op(node, "Softmax"):
            yield "softmax" if dims(operand(node, 0))[-1] == wide else "softmax_after"
        elif is_op(node, "Sigmoid"):
            yield "sigmoid" if dims(operand(node, 0))[-1] == wide else "sigmoid_after"


def _numbers(router: _Router, operators: Sequence[str]) -> Iterator[float]:
    """The scalar constants that such operators of the router read."""
    for node in router.nodes:
        if is_op(node, *operators):
            for value in node.inputs:
                number = scalar(value)
                if number is not None and np.isfinite(number):
                    yield number


def _counts(router: _Router) -> Iterator[int]:
    for node in router.nodes:
        if is_op(node, "TopK"):
            yield from constant_ints(node.inputs[1]) or ()


class _Probe:
    """Runs a router, in the reference implementation of ONNX.

    Args:
        model: Has the router.
        router: Which part of it that is.
    """

    def __init__(self, model: ir.Model, router: _Router) -> None:
        given = [router.logits, *([router.bias] if router.bias is not None else []), *router.shaped]
        self._bias = None if router.bias is None else dims(router.bias)
        self._shaped = [dims(value) for value in router.shaped]
        try:
            part = ir.convenience.extract(model.graph, given, [router.weights, router.experts])
        except ValueError as error:
            raise _UnknownRouterError(str(error)) from error
        for value in part.inputs:  # also of initializers: they are given other values
            value.const_value = None
            part.initializers.pop(value.name or "", None)
        for node in part:
            _count_axis_from_the_front(node)
        self._names = [value.name or "" for value in part.inputs]
        proto = ir.to_proto(ir.Model(part, ir_version=model.ir_version))
        self._evaluator = ReferenceEvaluator(proto)

    def run(self, logits: Float32, bias: Float32) -> tuple[Float32, Index]:
        """Weights and experts [T, k] for logits [T, E] and a bias [E]."""
        feeds = {self._names[0]: logits}
        if self._bias is not None:
            feeds[self._names[1]] = bias.reshape([int(d or 0) for d in self._bias])
        for name, shape in zip(self._names[::-1], self._shaped[::-1], strict=False):
            feeds[name] = np.zeros(rows_of(shape, len(logits)), np.float32)
        try:
            weights, experts = self._evaluator.run(None, feeds)
        except FAILURES as error:
            raise _UnknownRouterError(f"it cannot be run on logits alone: {error}") from error
        return weights, experts


def _count_axis_from_the_front(node: ir.Node) -> None:
    """The reference implementation of these two takes no negative axis."""
    size = rank(node.inputs[0])
    if is_op(node, "GatherElements", "ScatterElements") and size is not None:
        axis = node.attributes.get_int("axis", 0)
        node.attributes["axis"] = ir.AttrInt64("axis", axis % size)


def rows_of(shape: Sequence[int | str | None], rows: int) -> list[int]:
    """The shape of a value of so many tokens: the first axis without a fixed size has them all."""
    sizes = [size if isinstance(size, int) else 0 for size in shape]
    free = [index for index, size in enumerate(sizes) if not size]
    for index in free:
        sizes[index] = rows if index == free[0] else 1
    return sizes
