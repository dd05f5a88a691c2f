"""KL(reference ‖ engine), perplexity and agreement over tiles of the vocabulary.

With logits z of the reference and y of the engine for one row, log-sum-exps Lz and Ly, and
p = softmax(z), the divergence is sum(p * (z - y)) - Lz + Ly: every term is a sum over the
vocabulary, so one pass over tiles is enough. All sums are float64 and relative to the largest
logit so far, as in the streaming softmax of Milakov and Gimelshein (2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.proof.gates.finite import perplexity
from optc.runtime.executable.executable import Float32, Int32

Float64 = npt.NDArray[np.float64]

#: Tokens of the engine among which the reference's likeliest has to be for top-5 agreement.
TOP = 5
#: Logits of a few rows that are taken at a time: their float64 values fill a core's cache.
_CHUNK_ELEMENTS = 1 << 15
#: Logits of a column of which at first only the largest is looked at.
_DEPTH = 64


class _LogSumExp:
    """Streaming log-sum-exp of R rows, with the largest logit's index, what another model gives
    that index, and a second sum that is weighted by the same exponentials.

    Args:
        rows: R.
        exp: Takes float64 values, and writes their exponentials to ``out``.
    """

    def __init__(self, rows: int, exp: Callable[..., object] = np.exp) -> None:
        self._exp = exp
        self.top = np.full(rows, -np.inf)
        self.total = np.zeros(rows)
        self.weighted = np.zeros(rows)
        self.arg_top = np.zeros(rows, np.int64)
        self.other_at_top = np.full(rows, -np.inf)

    def add(
        self,
        rows: slice,
        tile: Float32,
        other: Float32,
        start: int,
        room: Float64,
        weights: Float64 | None = None,
    ) -> None:
        """Take a tile [R, n] of some rows that begins at vocabulary entry ``start``.

        Args:
            rows: Which these are.
            tile: Logits.
            other: The other model's.
            start: First vocabulary entry.
            room: [R, n], the tile in float64; replaced by its exponentials.
            weights: [R, n] of the second sum.
        """
        place, across = tile.argmax(axis=1), np.arange(len(tile))
        highest = tile[across, place]
        better = highest > self.top[rows]
        self.arg_top[rows] = np.where(better, place + start, self.arg_top[rows])
        self.other_at_top[rows] = np.where(better, other[across, place], self.other_at_top[rows])
        top = np.maximum(self.top[rows], highest)
        rescale = np.exp(self.top[rows] - top)
        room -= top[:, None]
        self._exp(room, out=room)
        self.total[rows] = self.total[rows] * rescale + room.sum(axis=1)
        if weights is not None:
            sums = np.vecdot(room, weights)
            self.weighted[rows] = self.weighted[rows] * rescale + sums
        self.top[rows] = top

    @property
    def value(self) -> Float64:
        """[R] log-sum-exp."""
        result: Float64 = self.top + np.log(self.total)
        return result


def _torch_exp(x: Float64, out: Float64) -> None:
    """A third of the time that NumPy takes where there is no AVX-512."""
    import torch  # beside the reference it is there

    torch.exp(torch.from_numpy(x), out=torch.from_numpy(out))


class RowDivergence:
    """Accumulates R rows over tiles of the vocabulary.

    A few rows are taken at a time, so that what is computed of them stays in the core's cache.

    Args:
        targets: [R] the token that really follows each row.
    """

    def __init__(self, targets: Int32) -> None:
        rows = len(targets)
        self._targets = targets.astype(np.int64)
        self._reference = _LogSumExp(rows, _torch_exp)
        self._engine = _LogSumExp(rows, _torch_exp)
        self._target_reference = np.zeros(rows)
        self._target_engine = np.zeros(rows)
        self._leading = np.full((rows, TOP), -np.inf, np.float32)  # the engine's largest logits
        self._room = np.empty((3, 0, 0))

    @np.errstate(invalid="ignore", over="ignore")  # what is no number shows in the figures
    def add(self, reference: Float32, engine: Float32, start: int) -> None:
        """Take logits of one tile, both [R, n], that begins at vocabulary entry ``start``."""
        width = reference.shape[1]
        together = max(1, _CHUNK_ELEMENTS // width)
        if self._room.shape[1:] != (together, width):
            self._room = np.empty((3, together, width))
        for first in range(0, len(reference), together):
            rows = slice(first, min(first + together, len(reference)))
            self._add_rows(rows, reference[rows], engine[rows], start)
        inside = np.flatnonzero((self._targets >= start) & (self._targets < start + width))
        column = self._targets[inside] - start
        self._target_reference[inside] = reference[inside, column]
        self._target_engine[inside] = engine[inside, column]

    def _add_rows(self, rows: slice, reference: Float32, engine: Float32, start: int) -> None:
        z, y, gaps = self._room[:, : len(reference)]
        z[:], y[:] = reference, engine
        np.subtract(z, y, out=gaps)
        self._reference.add(rows, reference, engine, start, z, gaps)
        self._engine.add(rows, engine, reference, start, y)
        among = engine.max(axis=1) > self._leading[rows].min(axis=1)
        if among.any():
            self._leading[rows][among] = _largest(self._leading[rows][among], engine[among])

    @np.errstate(invalid="ignore", over="ignore")
    def result(self) -> RowScores:
        """Figures of the rows, once every tile was added."""
        reference, engine = self._reference, self._engine
        kl = reference.weighted / reference.total - reference.value + engine.value
        # Without numbers on both sides nothing agrees: no token is the likeliest.
        known = np.isfinite(reference.value) & np.isfinite(engine.value)
        return RowScores(
            kl=np.maximum(kl, 0.0),  # rounding can leave -1e-16
            agree=known & (reference.arg_top == engine.arg_top),
            among_top5=known & (reference.other_at_top >= self._leading.min(axis=1)),
            nll_reference=reference.value - self._target_reference,
            nll_engine=engine.value - self._target_engine,
            best=self._best(),
        )

    def _best(self) -> BestTokens:
        reference, engine = self._reference, self._engine
        return BestTokens(
            np.stack([reference.arg_top, engine.arg_top], axis=1),
            np.stack([reference.top, engine.other_at_top], axis=1) - reference.value[:, None],
            np.stack([reference.other_at_top, engine.top], axis=1) - engine.value[:, None],
        )


@dataclass(frozen=True)
class BestTokens:
    """The likeliest tokens of R rows: the reference's, then the engine's.

    Attributes:
        tokens: [R, 2] ids; the lowest on ties.
        log_p_reference: [R, 2] what the reference gives them, in nats.
        log_p_engine: [R, 2] what the engine gives them, in nats.
    """

    tokens: npt.NDArray[np.int64]
    log_p_reference: Float64
    log_p_engine: Float64


@dataclass(frozen=True)
class RowScores:
    """Figures of R rows, in nats.

    Attributes:
        kl: [R] KL(reference ‖ engine).
        agree: [R] whether both rank the same token first (the lowest id on ties); not where logits
            are no finite numbers.
        among_top5: [R] whether fewer than `TOP` tokens are likelier to the engine than the
            reference's first.
        nll_reference: [R] -log p(target) of the reference.
        nll_engine: [R] -log p(target) of the engine.
        best: The likeliest tokens of both.
    """

    kl: Float64
    agree: npt.NDArray[np.bool_]
    among_top5: npt.NDArray[np.bool_]
    nll_reference: Float64
    nll_engine: Float64
    best: BestTokens

    def rows(self, start: int, stop: int) -> RowScores:
        """Figures of some of the rows."""
        part, best = slice(start, stop), self.best
        return RowScores(
            self.kl[part],
            self.agree[part],
            self.among_top5[part],
            self.nll_reference[part],
            self.nll_engine[part],
            BestTokens(best.tokens[part], best.log_p_reference[part], best.log_p_engine[part]),
        )


@dataclass(frozen=True)
class Divergence:
    """Figures over all rows. KL in nats per token."""

    tokens: int
    kl_mean: float
    kl_p99: float
    kl_max: float
    top1_agreement: float
    top5_agreement: float
    perplexity: float
    reference_perplexity: float

    @property
    def perplexity_ratio(self) -> float:
        """Perplexity of the engine over that of the reference."""
        return self.perplexity / self.reference_perplexity


def _largest(known: Float32, tile: Float32) -> Float32:
    """The `TOP` largest of each row of ``known`` [R, TOP] and ``tile`` [R, n], in any order.

    They are in the columns, of logits that lie as far apart, whose largest are the largest.
    """
    rows, width = tile.shape
    columns = width // _DEPTH
    if columns > TOP:
        whole = tile[:, : columns * _DEPTH].reshape(rows, _DEPTH, columns)
        chosen = np.argpartition(whole.max(axis=1), -TOP, axis=1)[:, -TOP:]
        leading = np.take_along_axis(whole, chosen[:, None], axis=2).reshape(rows, -1)
        tile = np.concatenate([leading, tile[:, columns * _DEPTH :]], axis=1)
    found: Float32 = np.partition(np.concatenate([known, tile], axis=1), -TOP, axis=1)[:, -TOP:]
    return found


def summarize(parts: Sequence[RowScores]) -> Divergence:
    """Figures over all rows of all parts; there must be at least one row."""
    kl = np.concatenate([part.kl for part in parts])
    return Divergence(
        tokens=len(kl),
        kl_mean=float(kl.mean()),
        kl_p99=float(np.percentile(kl, 99)),
        kl_max=float(kl.max()),
        top1_agreement=float(np.concatenate([part.agree for part in parts]).mean()),
        top5_agreement=float(np.concatenate([part.among_top5 for part in parts]).mean()),
        perplexity=perplexity(float(np.concatenate([p.nll_engine for p in parts]).mean())),
        reference_perplexity=perplexity(
            float(np.concatenate([p.nll_reference for p in parts]).mean())
        ),
    )


@np.errstate(invalid="ignore", over="ignore")
def negative_log_likelihood(logits: Float32, targets: Int32, tile: int = 8192) -> Float64:
    """[R] -log p(target) of rows of logits [R, V], in nats."""
    stream = _LogSumExp(len(targets))
    for start in range(0, logits.shape[1], tile):
        piece = logits[:, start : start + tile]
        stream.add(slice(None), piece, piece, start, piece.astype(np.float64))
    result: Float64 = stream.value - logits[np.arange(len(targets)), targets].astype(np.float64)
    return result
