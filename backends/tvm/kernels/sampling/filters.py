"""The filters of `optc.runtime.sampling.filters` over the tokens that may stay."""

from __future__ import annotations

from collections.abc import Callable

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import Expr, Register, absolute, bind, register, store
from optc.backends.tvm.kernels.sampling.math import distance, f64, i64, log
from optc.backends.tvm.kernels.sampling.rows import CHUNK, Values
from optc.backends.tvm.kernels.sampling.select import Candidates, when
from optc.runtime.sampling.sampler_math import FARTHEST, HELD, MASS_BITS, WHOLE_MASS

_LN2 = 0.6931471805599453
#: Relative slack of bounds on logits, above the rounding of float32.
_ROUNDING = 1e-6
_SLACK = 1e-6


def filtered(
    values: Values,
    candidates: Candidates,
    temperature: Expr,
    top_k: Expr,
    top_p: Expr,
    min_p: Expr,
    typical_p: Expr,
) -> None:
    """Leave the tokens that the filters keep; ``top_k`` is 0 or below the vocabulary's size."""
    bound = register(f64(HELD), "float64", 1)
    whole = register(i64(0), "int64", 1)
    least_mass = bind(min_p * f64(float(WHOLE_MASS)))
    # Top-p takes its share of all that top-k leaves: those too unlikely for min-p count as well.
    with when(tir.Not(tir.And(top_k > 0, top_p < f64(1.0)))):
        bound.set(_distance_of(least_mass))
    with when(typical_p < f64(1.0)):
        bound.set(tir.min(bound.get(), f64(FARTHEST)))
    with tir.If(top_k > 0):
        with tir.Then():
            _bound_by_count(values, candidates, top_k, temperature, bound)
            gather(values, candidates, temperature, bound.get())
            candidates.first_by(tir.cast(top_k, "int64"), by_mass=False)
            candidates.weigh()
            whole.set(candidates.total())
        with tir.Else():
            with when(top_p < f64(1.0)):
                whole.set(values.mass(temperature))
                left = bind(whole.get() - _share(whole.get(), top_p))
                spared = tir.cast(left // i64(values.vocab), "float64")
                bound.set(tir.min(bound.get(), _distance_of(spared)))
            gather(values, candidates, temperature, bound.get())
            candidates.weigh()
    with when(top_p < f64(1.0)):
        candidates.first_by(_share(whole.get(), top_p), by_mass=True)
    with when(min_p > f64(0.0)):
        candidates.keep(lambda i: tir.cast(candidates.mass[i], "float64") >= least_mass)
    with when(typical_p < f64(1.0)):
        left = candidates.total()
        center = candidates.mean(left)
        candidates.first_by(_share(left, typical_p), by_mass=True, center=center)


def likeliest(
    values: Values,
    candidates: Candidates,
    wanted: Expr,
    report: Callable[[Expr, Expr, Expr], None],
) -> None:
    """``report(place, token, distance)`` for the ``wanted`` (int32) likeliest tokens in order."""
    one = f64(1.0)
    bound = register(f64(HELD), "float64", 1)
    _bound_by_count(values, candidates, wanted, one, bound)
    gather(values, candidates, one, bound.get())
    candidates.first_by(tir.cast(wanted, "int64"), by_mass=False)
    with tir.serial(0, candidates.count.get()) as place:
        at, nearest = register(0, "int32", 1), register(f64(float("inf")), "float64", 1)
        count = candidates.count.get()
        with tir.serial(0, count) as i, when(candidates.far[i] < nearest.get()):
            nearest.set(candidates.far[i])
            at.set(i)
        report(place, bind(candidates.ids[at.get()]), bind(nearest.get()))
        store(candidates.far, f64(float("inf")), at.get())


def gather(values: Values, candidates: Candidates, temperature: Expr, bound: Expr) -> None:
    """Make candidates of all tokens up to the distance ``bound``, and of few others."""
    largest = bind(values.largest.get())
    least = bind(_least_logit(largest, temperature, bound))
    candidates.count.set(tir.int32(0))
    with tir.serial(0, values.chunks) as chunk, when(tir.Not(values.peaks[chunk] < least)):
        start, stop = chunk * CHUNK, tir.min((chunk + 1) * CHUNK, values.vocab)
        with tir.serial(start, stop) as token, when(tir.Not(values.logits[token] < least)):
            at = bind(candidates.count.get())
            store(candidates.ids, token, at)
            candidates.count.set(at + 1)
    with tir.serial(0, candidates.count.get()) as i:
        logit = bind(values.logits[candidates.ids[i]])
        store(candidates.far, distance(logit, largest, temperature), i)


def _least_logit(largest: Expr, temperature: Expr, bound: Expr) -> Expr:
    """A float32 that no logit up to the distance ``bound`` is below."""
    top = bind(tir.cast(largest, "float64"))
    reach = bind(bound * temperature)
    slack = (absolute(top) + reach) * f64(_ROUNDING)
    lowest = tir.float32(float("-inf"))
    least = tir.cast((top - reach) - slack, "float32")
    known = tir.And(bound < f64(HELD), top < f64(float("inf")))
    return tir.Select(known, least, lowest)


def _bound_by_count(
    values: Values, candidates: Candidates, count: Expr, temperature: Expr, bound: Register
) -> None:
    """Lower ``bound`` to a distance that at least ``count`` tokens do not exceed."""
    largest = bind(values.largest.get())
    with when(count <= values.chunks):
        candidates.count.set(tir.int32(values.chunks))
        with tir.serial(0, values.chunks) as i:
            store(candidates.ids, i, i)
            store(candidates.far, distance(bind(values.peaks[i]), largest, temperature), i)
        candidates.first_by(tir.cast(count, "int64"), by_mass=False)
        farthest = register(f64(0.0), "float64", 1)
        with tir.serial(0, candidates.count.get()) as i:
            farthest.set(tir.max(farthest.get(), candidates.far[i]))
        bound.set(tir.min(bound.get(), farthest.get()))


def _distance_of(mass: Expr) -> Expr:
    """A distance that no token of more than a mass (float64) exceeds."""
    known = bind(mass >= f64(2.0))
    logarithm = log(tir.max(mass - f64(1.0), f64(1.0)))
    return bind(tir.Select(known, f64(MASS_BITS * _LN2 + _SLACK) - logarithm, f64(HELD)))


def _share(whole: Expr, share: Expr) -> Expr:
    """`optc.runtime.sampling.filters.share_of`."""
    return bind(tir.max(tir.cast(share * tir.cast(whole, "float64"), "int64"), i64(1)))
