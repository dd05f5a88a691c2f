"""How fast a machine works through `Work`: measured, or as it was on the machine of the figures."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from optc.pipeline.work import Work
from optc.target import usable_threads

#: Time that each kind of product is measured.
_SAMPLE_S = 0.2
_ROWS, _INPUTS = 1024, 2048


@dataclass(frozen=True)
class Paces:
    """Of all usable threads together, with nothing else running.

    Attributes:
        float32: Multiply-adds of float32 a second, of large products of matrices.
        bfloat16: Of bfloat16.
        float64: Of float64.
        steps: Element-wise operations a second.
        measured: Whether products were measured on this machine.
    """

    float32: float
    bfloat16: float
    float64: float
    steps: float
    measured: bool = False

    def seconds(self, work: Work) -> float:
        """Time that ``work`` takes, one kind after the other."""
        return (
            work.float32 / self.float32
            + work.bfloat16 / self.bfloat16
            + work.float64 / self.float64
            + work.steps / self.steps
        )


#: Of one core of Zen 4 at 3.3 GHz; `benchmarks.proof.plan_check` compares what follows of them.
CORE = Paces(float32=48e9, bfloat16=105e9, float64=19e9, steps=0.9e9)


def assumed_paces(threads: int | None = None) -> Paces:
    """Those of as many cores of the machine that was measured."""
    count = threads or usable_threads()
    return Paces(
        float32=count * CORE.float32,
        bfloat16=count * CORE.bfloat16,
        float64=count * CORE.float64,
        steps=count * CORE.steps,
    )


def measured_paces() -> Paces:
    """Products are measured, half a second in all; steps follow those of float32."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((_ROWS, _INPUTS)).astype(np.float32)
    w = rng.standard_normal((_INPUTS, _INPUTS)).astype(np.float32)
    wide, square = w.astype(np.float64), w.T.copy()
    usual, threads = assumed_paces(), usable_threads()
    float32 = _pace(lambda: x @ square, x.size * _INPUTS)
    found = replace(
        usual,
        float32=float32,
        float64=_pace(lambda: wide @ wide, wide.size * _INPUTS),
        steps=usual.steps * float32 / usual.float32,
        measured=True,
    )
    from optc.reference.streams.products import BFLOAT16, products_here, products_of

    if products_here() != BFLOAT16:
        return replace(found, bfloat16=float32)
    products = products_of(BFLOAT16, threads)
    weight = products.weight(w)
    return replace(found, bfloat16=_pace(lambda: products(x, [weight]), x.size * _INPUTS))


def _pace(run: Callable[[], object], amount: float) -> float:
    """The best of some runs: others may run on the machine."""
    run()
    best, ends = float("inf"), time.perf_counter() + _SAMPLE_S
    while time.perf_counter() < ends:
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return amount / best
