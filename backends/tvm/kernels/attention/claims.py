"""Work items are claimed one after the other by the threads that are free.

Items cost differently (a prompt's later rows see more tokens, sequences differ in length), so that
no fixed division is even. But a thread should go through items in order: next to each other lie
their K and V, which the processor's own prefetching brings along. So items are divided into as many
ranges as there may be threads; a thread begins with its own, and goes on with the ranges behind it,
and then those before it, wherever items are left. Which thread does an item changes nothing in its
result.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import LANES, Expr, bind, register, scratch, splat, store

#: Most ranges, and threads that begin with one of their own.
_RANGES = 64
_NAME = "optc_claim"
#: To be imported by a kernel that calls `for_claimed`.
CLAIM_IR = f"""
define i32 @{_NAME}(ptr %claims) #0 {{
  %before = atomicrmw add ptr %claims, i32 1 monotonic
  ret i32 %before
}}
attributes #0 = {{ alwaysinline nounwind }}
"""


def for_claimed(count: Expr, body: Callable[[Expr], None]) -> None:
    """``body(index)`` for all indices below ``count``, in parallel on all threads."""
    # Claims of each range, and whether all is claimed; first index of each range. These are loaded
    # where they are needed: LLVM's analysis of their divisions throughout a large body takes
    # minutes.
    claims = scratch((_RANGES + LANES,), "int32")
    starts = scratch((_RANGES + LANES,), "int32")
    for first in range(0, _RANGES + LANES, LANES):
        store(claims, splat(0, "int32"), first)
    ranges = bind(tir.min(count, _RANGES))
    with tir.serial(0, ranges + 1) as index:
        store(starts, index * count // ranges, index)
    with tir.parallel(0, ranges) as own, tir.If(claims[_RANGES] == 0), tir.Then():
        with tir.serial(0, ranges) as turn:
            begun = bind(own + turn)
            index = bind(tir.Select(begun < ranges, begun, begun - ranges))
            low, end = bind(starts[index]), bind(starts[index + 1])
            with tir.If(low + claims[index] < end), tir.Then():
                _claim_all(claims, index, (low, end), body)
        store(claims, tir.int32(1), _RANGES)


def _claim_all(
    claims: Expr, index: Expr, within: tuple[Expr, Expr], body: Callable[[Expr], None]
) -> None:
    """Claim the rest of a range, which goes over the indices ``within``."""
    low, end = within
    current = register(0, "int32", 1)
    current.set(low + _claim(claims, index))
    with tir.While(current.get() < end):
        body(bind(current.get()))
        current.set(low + _claim(claims, index))


def _claim(claims: Expr, index: Expr) -> Expr:
    """The number of claims of a range before this one."""
    return tir.call_extern("int32", _NAME, tir.address_of(claims[index]))
