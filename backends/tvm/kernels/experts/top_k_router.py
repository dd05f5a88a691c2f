"""The router: which experts a token gets, and with which weights."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.math import exp, sigmoid
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    SERIAL_WORK,
    Expr,
    Register,
    bind,
    for_rows,
    intrinsic,
    kernel,
    load,
    register,
    round_up,
    scratch,
    splat,
    store,
)
from optc.backends.tvm.kernels.dsl.vectors import first_lanes, for_vectors, load_part, reduce_row
from optc.backends.tvm.kernels.experts.spans import check_experts
from optc.backends.tvm.kernels.experts.sparse_mixer import weight_among_rivals
from optc.errors import UnsupportedError

SCORINGS = ("softmax", "sigmoid", "softmax_after", "sigmoid_after", "sparse_mixer")
GROUP_SCORES = ("max", "top2_sum")
#: What can no longer be chosen; everything else counts as at least the least finite number, so that
#: even rows that are no numbers choose k different experts.
_GONE, _LEAST = float("-inf"), -3.4028234663852886e38
#: Scoring an expert costs about as much as this many plain element operations, and looking at it
#: for one choice about one.
_COST = 8


@dataclass(frozen=True)
class TopKRouter:
    """A router.

    Attributes:
        experts: E.
        chosen: k, experts of a token.
        scoring: ``softmax`` over all logits, ``sigmoid``, ``softmax_after`` and ``sigmoid_after``,
            of those chosen, or ``sparse_mixer``, a softmax over those left and near.
        normalize: The weights are divided by their sum.
        norm_epsilon: Added to that sum.
        scale: Factor of the weights.
        groups: Groups of as many experts each, of which ``top_groups`` can be chosen from; 1 is no
            grouping.
        top_groups: See there.
        group_score: Of a group: ``max`` or ``top2_sum`` of its experts' scores.
        bias: A bias of each expert, added to its score for the choice only, is an operand.
        threshold: How far apart rivals are at most, of ``sparse_mixer``.
    """

    experts: int
    chosen: int
    scoring: str = "softmax"
    normalize: bool = False
    norm_epsilon: float = 0.0
    scale: float = 1.0
    groups: int = 1
    top_groups: int = 1
    group_score: str = "max"
    bias: bool = False
    threshold: float = 0.0

    def __post_init__(self) -> None:
        reason = router_problem(self)
        if reason:
            raise UnsupportedError(reason, where="top_k_router")
        check_experts(self.experts, self.chosen, "top_k_router")

    @property
    def members(self) -> int:
        """Experts of a group."""
        return self.experts // self.groups


def router_problem(config: TopKRouter) -> str:
    """Empty if there is a kernel, else why not."""
    if config.scoring not in SCORINGS:
        return f"no router scores by {config.scoring!r}, but by {', '.join(SCORINGS)}"
    if config.scoring == "sparse_mixer" and (config.bias or config.groups > 1):
        return "a sparse mixer has no bias and no groups"
    if config.groups == 1:
        return ""
    if config.group_score not in GROUP_SCORES:
        return f"no router scores groups by {config.group_score!r}, but {', '.join(GROUP_SCORES)}"
    if config.groups < 1 or config.experts % config.groups:
        return f"{config.experts} experts are no {config.groups} equal groups"
    if not 1 <= config.top_groups <= config.groups:
        return f"{config.top_groups} of {config.groups} groups cannot be chosen"
    if config.top_groups * config.members < config.chosen:
        return f"{config.top_groups} groups of {config.members} have no {config.chosen} experts"
    if config.group_score == "top2_sum" and config.members < 2:
        return "groups of one expert have no two best ones"
    return ""


def top_k_router(config: TopKRouter, isa: Isa) -> tvm.tirx.PrimFunc:
    """logits f32 [T,E], [bias f32 [E]] -> weights f32 [T,k], experts i32 [T,k].

    Experts descend by score (and bias), the lower index first among equals. ``isa`` changes
    nothing: every instruction set runs the same operations.
    """
    count, chosen = config.experts, config.chosen
    with kernel("top_k_router") as builder:
        rows = builder.size()
        logits = builder.argument("logits", (rows, count))
        bias = builder.argument("bias", (count,)) if config.bias else None
        weights = builder.argument("weights", (rows, chosen))
        experts = builder.argument("experts", (rows, chosen), "int32")

        def body(row: Expr) -> None:
            width = round_up(count, LANES)
            scores, choices = scratch((width,)), scratch((width,))
            _score(config, logits, row, scores)
            _prepare(count, scores, bias, choices)
            if config.groups > 1:
                _leave_groups(config, choices)
            with tir.serial(0, chosen) as choice:
                best = _largest(choices, width)
                store(experts, best, row, choice)
                score = scores[best]
                if config.scoring == "sparse_mixer":
                    score = weight_among_rivals(choices, bind(score), width, config.threshold)
                store(weights, score, row, choice)
                store(choices, tir.float32(_GONE), best)
            _weigh(config, weights, row)

        work = count * (_COST + chosen)
        for_rows(rows, rows * work > SERIAL_WORK, body)
    return builder.finish()


def _score(config: TopKRouter, logits: Expr, row: Expr, scores: Expr) -> None:
    """Write the scores of a row's experts."""
    count = config.experts

    def write(offset: Expr | int, part: int) -> None:
        value = load_part(logits, part, row, offset)
        store(scores, sigmoid(value) if config.scoring == "sigmoid" else value, offset)

    if config.scoring != "softmax":
        for_vectors(count, write)
        return

    def take(partial: Register, offset: Expr | int, part: int) -> None:
        value = load_part(logits, part, row, offset)
        partial.set(tir.max(partial.get(), _only(part, value, _GONE)))

    largest = bind(splat(reduce_row(count, _GONE, take, tir.max)))

    def add(partial: Register, offset: Expr | int, part: int) -> None:
        power = bind(exp(load_part(logits, part, row, offset) - largest))
        store(scores, power, offset)
        partial.set(partial.get() + _only(part, power, 0.0))

    total = bind(splat(reduce_row(count, 0.0, add, lambda a, b: a + b)))
    for_vectors(count, lambda offset, part: store(scores, load(scores, offset) / total, offset))


def _only(part: int, value: Expr, rest: float) -> Expr:
    """The first ``part`` lanes, and ``rest`` in the others."""
    return value if part == LANES else tir.Select(first_lanes(part), value, splat(rest))


def _prepare(count: int, scores: Expr, bias: Expr | None, choices: Expr) -> None:
    """Write what the choice goes by; numbers that are none count as the least."""

    def write(offset: Expr | int, part: int) -> None:
        value = load(scores, offset)
        if bias is not None:
            value = value + load_part(bias, part, offset)
        least = intrinsic("llvm.maxnum", f"float32x{LANES}", bind(value), splat(_LEAST))
        store(choices, _only(part, least, _GONE), offset)

    for_vectors(count, write)


def _largest(values: Expr, width: int) -> Expr:
    """Index of the first largest of ``width`` values, a multiple of 16."""
    largest = bind(
        splat(
            reduce_row(
                width,
                _GONE,
                lambda partial, o, _: partial.set(tir.max(partial.get(), load(values, o))),
                tir.max,
            )
        )
    )
    first = register(width, "int32")
    with tir.serial(0, width // LANES) as index:
        lanes = tir.ramp(index * LANES, 1, LANES)
        equal = load(values, index * LANES) == largest
        found = tir.Select(equal, lanes, splat(width, "int32"))
        first.set(tir.min(first.get(), found))
    return bind(intrinsic("llvm.vector.reduce.smin", "int32", first.get()))


def _leave_groups(config: TopKRouter, choices: Expr) -> None:
    """Keep the experts of the best groups only."""
    members, width = config.members, round_up(config.groups, LANES)
    groups, kept = scratch((width,)), scratch((width,), "int32")
    for offset in range(0, width, LANES):
        store(groups, splat(_GONE), offset)
        store(kept, splat(0, "int32"), offset)
    with tir.serial(0, config.groups) as group:
        best, second = register(_GONE, lanes=1), register(_GONE, lanes=1)
        with tir.serial(0, members) as member:
            value = register(0.0, lanes=1)
            value.set(choices[group * members + member])
            second.set(tir.max(second.get(), tir.min(best.get(), value.get())))
            best.set(tir.max(best.get(), value.get()))
        score = best.get() + second.get() if config.group_score == "top2_sum" else best.get()
        store(groups, tir.max(score, tir.float32(_LEAST)), group)
    with tir.serial(0, config.top_groups):
        best_group = _largest(groups, width)
        store(groups, tir.float32(_GONE), best_group)
        store(kept, tir.int32(1), best_group)
    lost = tir.float32(_GONE)
    with tir.serial(0, config.experts) as expert, tir.If(kept[expert // members] == 0), tir.Then():
        store(choices, lost, expert)


def _weigh(config: TopKRouter, weights: Expr, row: Expr) -> None:
    """Turn the scores of a row's experts into their weights."""
    chosen = config.chosen

    def total() -> Expr:
        result = register(0.0, lanes=1)
        with tir.serial(0, chosen) as choice:
            result.set(result.get() + weights[row, choice])
        return bind(result.get())

    if config.scoring == "sigmoid_after":
        with tir.serial(0, chosen) as choice:
            store(weights, sigmoid(weights[row, choice]), row, choice)
    if config.scoring == "softmax_after":
        largest = register(_GONE, lanes=1)
        with tir.serial(0, chosen) as choice:
            largest.set(tir.max(largest.get(), weights[row, choice]))
        with tir.serial(0, chosen) as choice:
            store(weights, exp(weights[row, choice] - largest.get()), row, choice)
        _divide(weights, row, chosen, total())
    if config.normalize:
        _divide(weights, row, chosen, total() + tir.float32(config.norm_epsilon))
    if config.scale != 1.0:
        with tir.serial(0, chosen) as choice:
            store(weights, weights[row, choice] * tir.float32(config.scale), row, choice)


def _divide(weights: Expr, row: Expr, chosen: int, divisor: Expr) -> None:
    by = register(0.0, lanes=1)
    by.set(divisor)
    with tir.serial(0, chosen) as choice:
        store(weights, weights[row, choice] / by.get(), row, choice)
