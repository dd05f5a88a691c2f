"""How fast a machine works through `Work`: measured, or as it was on the machine of the figures."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from optc.pipeline.work import Work
from optc.target import usable_threads

Float32 = npt.NDArray[np.float32]
#: Time that each kind of product is measured.
_SAMPLE_S = 0.2
#: Rows that the reference takes at once, and the layer where none is named: N and K.
_ROWS, _LAYER = 512, (2048, 2048)


@dataclass(frozen=True)
class Paces:
    """Of all usable threads together, with nothing else running.

    Attributes:
        float32: Multiply-adds of float32 a second, of large products of matrices.
        bfloat16: Of bfloat16.
        int8: Of int8.
        float64: Of float64.
        steps: Element-wise operations a second.
        alone: The same of one thread.
        measured: Whether products were measured on this machine.
    """

    float32: float
    bfloat16: float
    int8: float
    float64: float
    steps: float
    alone: float
    measured: bool = False

    def seconds(self, work: Work) -> float:
        """Time that ``work`` takes, one kind after the other."""
        return (
            work.float32 / self.float32
            + work.bfloat16 / self.bfloat16
            + work.int8 / self.int8
            + work.float64 / self.float64
            + work.steps / self.steps
            + work.alone / self.alone
        )


#: Of one core of Zen 4 at 3.3 GHz, int8 of Cascade Lake at 2.5 GHz; `benchmarks.proof.plan_check`
#: compares what follows of them.
CORE = Paces(float32=48e9, bfloat16=105e9, int8=148e9, float64=19e9, steps=0.9e9, alone=0.9e9)


def assumed_paces(threads: int | None = None) -> Paces:
    """Those of as many cores of the machine that was measured."""
    count = threads or usable_threads()
    return Paces(
        float32=count * CORE.float32,
        bfloat16=count * CORE.bfloat16,
        int8=count * CORE.int8,
        float64=count * CORE.float64,
        steps=count * CORE.steps,
        alone=CORE.alone,
    )


def measured_paces(layer: tuple[int, int] = _LAYER) -> Paces:
    """Products are measured, a second in all: small layers have fewer multiply-adds a second. Steps
    follow the float32 products of a layer that is not small down, but not up: wider products than
    the reference's do not make them faster.

    Args:
        layer: N and K of the layer that is measured; larger ones than `_LAYER` are as fast as that.
    """
    rng = np.random.default_rng(0)
    usual = assumed_paces()
    rows, inputs = (min(side, most) for side, most in zip(layer, _LAYER, strict=True))
    peak = _float32(rng, *_LAYER)
    float32 = peak if (rows, inputs) == _LAYER else _float32(rng, rows, inputs)
    growth = min(1.0, peak / usual.float32)
    wide = rng.standard_normal((inputs, inputs))
    found = replace(
        usual,
        float32=float32,
        float64=_pace(lambda: wide @ wide, wide.size * inputs),
        steps=usual.steps * growth,
        alone=usual.alone * growth,
        measured=True,
    )
    from optc.reference.streams.choice import has_int8, products_here
    from optc.reference.streams.int8_products import INT8
    from optc.reference.streams.products import BFLOAT16

    x = rng.standard_normal((_ROWS, inputs)).astype(np.float32)
    weight = rng.standard_normal((rows, inputs)).astype(np.float32)
    return replace(
        found,
        bfloat16=_products(BFLOAT16, x, weight) if products_here() == BFLOAT16 else float32,
        int8=_products(INT8, x, weight) if has_int8() else float32,
    )


def _products(name: str, x: Float32, weight: Float32) -> float:
    """The pace of x Wᵀ by the products called ``name``."""
    from optc.reference.streams.choice import products_of

    products = products_of(name, usable_threads())
    ready = products.weight(weight)
    return _pace(lambda: products(x, [ready]), x.size * len(weight))


def _float32(rng: np.random.Generator, rows: int, inputs: int) -> float:
    x = rng.standard_normal((_ROWS, inputs)).astype(np.float32)
    w = rng.standard_normal((inputs, rows)).astype(np.float32)
    return _pace(lambda: x @ w, x.size * rows)


def _pace(run: Callable[[], object], amount: float) -> float:
    """The best of some runs: others may run on the machine."""
    run()
    best, ends = float("inf"), time.perf_counter() + _SAMPLE_S
    while time.perf_counter() < ends:
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return amount / best
