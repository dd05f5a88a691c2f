"""The plan of a step: its rows by expert."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import Expr, bind, kernel, register, scratch, store
from optc.backends.tvm.kernels.experts.spans import check_experts
from optc.backends.tvm.kernels.matmul.matmul_int import KEPT_ROWS

#: Most rows of a span: tasks keep the sums of no more from one panel of K to the next.
SPAN_ROWS = KEPT_ROWS


@dataclass(frozen=True)
class ExpertPlan:
    """E experts, of which each token has chosen k."""

    experts: int
    chosen: int

    def __post_init__(self) -> None:
        check_experts(self.experts, self.chosen, "expert_plan")


def expert_plan(config: ExpertPlan, isa: Isa) -> tvm.tirx.PrimFunc:
    """experts i32 [T,k] -> order i32 [M], spans i32 [M,3], count i32 [1], where M is k T.

    A row is a token and one of its choices, ``token * k + choice``. ``order`` has them by expert,
    those of one expert ascending (a counting sort). ``spans`` has experts with rows, ascending:
    the expert, its first place in ``order`` and the place behind its last, in spans of at most 256
    rows about equally long; ``count`` of them. ``isa`` changes nothing: every instruction set runs
    the same operations.
    """
    chosen = config.chosen
    with kernel("expert_plan") as builder:
        tokens, rows = builder.size(), builder.size()
        experts = builder.argument("experts", (tokens, chosen), "int32")
        order = builder.argument("order", (rows,), "int32")
        spans = builder.argument("spans", (rows, 3), "int32")
        count = builder.argument("count", (1,), "int32")
        places = scratch((config.experts,), "int32")
        with tir.serial(0, config.experts) as expert:
            store(places, tir.int32(0), expert)
        with tir.serial(0, tokens) as token, tir.serial(0, chosen) as choice:
            expert = bind(experts[token, choice])
            store(places, places[expert] + 1, expert)
        _spans(config.experts, places, spans, count)
        with tir.serial(0, tokens) as token, tir.serial(0, chosen) as choice:
            expert = bind(experts[token, choice])
            store(order, token * chosen + choice, places[expert])
            store(places, places[expert] + 1, expert)
    return builder.finish()


def _spans(experts: int, places: Expr, spans: Expr, count: Expr) -> None:
    """Write the spans; ``places`` [E] has the rows of each expert, and then its first place."""
    found, place = register(0, "int32", 1), register(0, "int32", 1)
    with tir.serial(0, experts) as expert:
        size, first = register(0, "int32", 1), register(0, "int32", 1)
        size.set(places[expert])
        first.set(place.get())
        store(places, first.get(), expert)
        pieces = register(0, "int32", 1)
        pieces.set((size.get() + (SPAN_ROWS - 1)) // SPAN_ROWS)
        with tir.serial(0, pieces.get()) as piece:
            store(spans, expert, found.get(), 0)
            store(spans, first.get() + size.get() * piece // pieces.get(), found.get(), 1)
            store(spans, first.get() + size.get() * (piece + 1) // pieces.get(), found.get(), 2)
            found.set(found.get() + 1)
        place.set(first.get() + size.get())
    store(count, found.get(), 0)
