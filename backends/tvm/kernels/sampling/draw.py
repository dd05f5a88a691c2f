"""Gumbel-max: the token with the largest noise minus distance, the lowest id on ties.

A word with c leading ones has Gumbel noise of at most (c + 1) * ln 2, so that most tokens lose
without a logarithm, and most chunks of 64 without a random word.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import (
    Expr,
    Register,
    bind,
    register,
    scratch,
)
from optc.backends.tvm.kernels.sampling.math import distance, f64, gumbel, word
from optc.backends.tvm.kernels.sampling.noise import BLOCK, Noise
from optc.backends.tvm.kernels.sampling.rows import CHUNK, Values
from optc.backends.tvm.kernels.sampling.select import Candidates, when

_LN2 = 0.6931471805599453
#: More than any rounding of a score near those that decide.
_SLACK = 1e-6
#: More than the noise of any word: 53 * ln 2 + _SLACK.
_MOST_NOISE = 36.75


@dataclass(frozen=True)
class _Best:
    """The best score so far, float64, and its token, int32."""

    score: Register
    token: Register

    @classmethod
    def none(cls) -> _Best:
        score = register(f64(float("-inf")), "float64", 1)
        return cls(score, register(0x7FFFFFFF, "int32", 1))

    def try_token(self, token: Expr, far: Expr, drawn: Expr) -> None:
        """Compare a token of a distance and a random word."""
        ones = tir.cast(_leading_ones(drawn) + 1, "float64")
        with when(ones * f64(_LN2) + f64(_SLACK) - far >= self.score.get()):
            score = bind(gumbel(drawn) - far)
            wins = tir.And(score == self.score.get(), token < self.token.get())
            with when(tir.Or(score > self.score.get(), wins)):
                self.score.set(score)
                self.token.set(token)


def _leading_ones(drawn: Expr) -> Expr:
    return tir.cast(tir.clz(tir.reinterpret(drawn ^ word((1 << 64) - 1), dtype="int64")), "int32")


def draw_among(candidates: Candidates, noise: Noise) -> Expr:
    """Draw one of the candidates."""
    best = _Best.none()
    words = scratch((BLOCK,), "uint64")
    held = register(-1, "int32", 1)
    with tir.serial(0, candidates.count.get()) as i:
        token = bind(candidates.ids[i])
        block = bind(token // BLOCK)
        with when(block != held.get()):
            noise.block(block, words)
            held.set(block)
        best.try_token(token, bind(candidates.far[i]), bind(words[token % BLOCK]))
    return bind(best.token.get())


def draw_from_all(values: Values, noise: Noise, temperature: Expr, likeliest: Expr) -> Expr:
    """Draw one of all tokens, beginning with the likeliest one."""
    best = _Best.none()
    words = scratch((BLOCK,), "uint64")
    largest = bind(values.largest.get())
    noise.block(likeliest // BLOCK, words)
    best.try_token(likeliest, f64(0.0), bind(words[likeliest % BLOCK]))
    with tir.serial(0, values.chunks) as chunk:
        nearest = distance(bind(values.peaks[chunk]), largest, temperature)
        needed = bind(best.score.get() + nearest)
        with when(needed <= f64(_MOST_NOISE)):
            least = _least_word(needed)
            with tir.serial(0, CHUNK // BLOCK) as part:
                block = bind(chunk * (CHUNK // BLOCK) + part)
                noise.block(block, words)
                for lane in range(BLOCK):
                    drawn = bind(words[lane])
                    with when(drawn >= least):
                        token = bind(block * BLOCK + lane)
                        logit = bind(values.logits[token])
                        best.try_token(token, distance(logit, largest, temperature), drawn)
    return bind(best.token.get())


def _least_word(needed: Expr) -> Expr:
    """A word such that all smaller ones have less noise than ``needed``, at most 53 * ln 2."""
    ones = tir.cast(tir.max((needed - f64(_SLACK)) / f64(_LN2), f64(1.0)), "int64") - 1
    # Noise of at least (ones + 1) * ln 2 needs that many leading ones.
    zeros = tir.reinterpret(tir.int64(64) - ones, dtype="uint64")
    shifted = word((1 << 64) - 1) << tir.min(zeros, word(63))
    return bind(tir.Select(ones > 0, shifted, word(0)))
