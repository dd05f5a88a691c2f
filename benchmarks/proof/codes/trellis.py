"""Trellis-coded weights, in simulation: a code of b bits shifts into a state of L bits, and the
state is looked up in a table of 2^L levels (Tseng et al., QTIP, 2024, arXiv:2406.11235).

A sequence runs down the rows of one column, so that GPTQ's feedback from column to column is as
exact as with single values; the Viterbi algorithm finds the codes of the least squared error. The
table is learned on normal numbers and rounded to int8. A row has one float scale, its root mean
square over the largest level that is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.proof.codes.layers import Float32, Float64, Layer
from optc.passes.numerics.gptq.factor import invert_root

#: Rows of a sequence, whose first state is free.
SEQUENCE = 128
#: One is this many steps of an int8 level.
STEPS = 32
_TRAINING, _ITERATIONS = (512, 256), 12


def viterbi(x: Float32, table: Float32, bits: int) -> npt.NDArray[np.intp]:
    """States [T, B] of the path of the least squared error for sequences x [T, B]. A state is the
    one before, shifted by ``bits``, and the new code."""
    states, codes = len(table), 1 << bits
    cost = np.square(x[0][:, None] - table)
    came = np.empty((len(x) - 1, x.shape[1], states // codes), np.uint8)
    for t in range(1, len(x)):
        before = cost.reshape(-1, codes, states // codes)  # by what is shifted out
        came[t - 1] = before.argmin(axis=1)
        cost = np.square(x[t][:, None] - table)
        cost.reshape(-1, states // codes, codes)[...] += before.min(axis=1)[..., None]
    path = np.empty(x.shape, np.intp)
    path[-1] = cost.argmin(axis=1)
    each = np.arange(x.shape[1])
    for t in range(len(x) - 1, 0, -1):
        kept = path[t] // codes
        out = came[t - 1, each, kept].astype(np.intp)
        path[t - 1] = out * (states // codes) + kept
    return path


def learned_table(bits: int, state_bits: int) -> Float32:
    """Levels [2^L] for normal numbers, by Lloyd's iteration over paths, in steps of int8."""
    draw = np.random.default_rng(0)
    count = 1 << state_bits
    x = draw.normal(size=_TRAINING).astype(np.float32)
    table = draw.normal(size=count).astype(np.float32)
    for _ in range(_ITERATIONS):
        path = viterbi(x, table, bits).ravel()
        hits = np.bincount(path, minlength=count)
        sums = np.bincount(path, x.ravel(), minlength=count)
        table = np.where(hits > 0, sums / np.maximum(hits, 1), table).astype(np.float32)
    return np.asarray(np.clip(np.rint(table * STEPS), -127, 127) / STEPS, np.float32)


def distortion(table: Float32, bits: int) -> float:
    """Mean squared error of normal numbers of variance 1 that the table has not seen."""
    x = np.random.default_rng(1).normal(size=_TRAINING).astype(np.float32)
    return float(np.mean(np.square(table[viterbi(x, table, bits)] - x)))


def gptq(layers: Sequence[Layer], table: Float32, bits: int, *, rotate: bool) -> list[Float32]:
    """The weights of layers of one K after GPTQ, all of them side by side."""
    turns = [_rotation(layer.weight.shape[1]) if rotate else None for layer in layers]
    parts = [_turned(layer, turn) for layer, turn in zip(layers, turns, strict=True)]
    scales = [_scales(weight) for weight, _ in parts]
    work = [(w / s).T.copy() for (w, _), s in zip(parts, scales, strict=True)]
    shares = [_shares(hessian) for _, hessian in parts]
    widths = [one.shape[1] for one in work]
    near = [np.empty_like(one) for one in work]
    ends = np.cumsum(widths)[:-1]
    for column in range(len(work[0])):
        x = np.concatenate([one[column] for one in work])
        path = viterbi(np.ascontiguousarray(x.reshape(-1, SEQUENCE).T), table, bits)
        for w, q, own, share in zip(
            work, near, np.split(table[path].T.ravel(), ends), shares, strict=True
        ):
            q[column] = own
            w[column + 1 :] -= share[column, column + 1 :, None] * (w[column] - own)
    found = [(q.T * s).astype(np.float32) for q, s in zip(near, scales, strict=True)]
    return [
        one if turn is None else np.asarray(one @ turn.T, np.float32)
        for one, turn in zip(found, turns, strict=True)
    ]


def _scales(weight: Float32) -> Float32:
    """[N, 1] root mean squares."""
    return np.asarray(np.sqrt(np.square(weight).mean(axis=1, keepdims=True)), np.float32)


def _rotation(size: int) -> Float64:
    """A random orthogonal matrix: what a Hadamard matrix with random signs does, for any size."""
    draw = np.random.default_rng(size).normal(size=(size, size))
    return np.asarray(np.linalg.qr(draw)[0])


def _turned(layer: Layer, turn: Float64 | None) -> tuple[Float32, Float64]:
    if turn is None:
        return layer.weight, layer.hessian
    return np.asarray(layer.weight @ turn, np.float32), turn.T @ layer.hessian @ turn


def _shares(hessian: Float64) -> Float32:
    """As `Factor.shares`, the columns in the order in which they lie."""
    reverse = hessian[::-1, ::-1].copy()
    dead = reverse.diagonal() == 0
    reverse[dead, dead] = 1.0
    invert_root(reverse, "layer")
    upper = reverse[::-1, ::-1]
    return np.asarray(upper / upper.diagonal()[:, None], np.float32)
