"""KL(reference ‖ engine), perplexity and agreement over tiles of the vocabulary.

With logits z of the reference and y of the engine for one row, log-sum-exps Lz and Ly, and
p = softmax(z), the divergence is sum(p * (z - y)) - Lz + Ly: every term is a sum over the
vocabulary, so one pass over tiles is enough. All sums are float64 and relative to the largest
logit so far, as in the streaming softmax of Milakov and Gimelshein (2018).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.executable.executable import Float32, Int32

Float64 = npt.NDArray[np.float64]

#: Tokens of the engine among which the reference's likeliest has to be for top-5 agreement.
TOP = 5


class _LogSumExp:
    """Streaming log-sum-exp of R rows, with the largest logit's index, what another model gives
    that index, and a second sum that is weighted by the same exponentials."""

    def __init__(self, rows: int) -> None:
        self.top = np.full(rows, -np.inf)
        self.total = np.zeros(rows)
        self.weighted = np.zeros(rows)
        self.arg_top = np.zeros(rows, np.int64)
        self.other_at_top = np.full(rows, -np.inf)

    def add(self, tile: Float64, other: Float64, start: int, weights: Float64 | None) -> None:
        """Take a tile [R, n] that begins at vocabulary entry ``start``, and the other model's."""
        place, rows = tile.argmax(axis=1), np.arange(len(tile))
        highest = tile[rows, place]
        better = highest > self.top
        self.arg_top = np.where(better, place + start, self.arg_top)
        self.other_at_top = np.where(better, other[rows, place], self.other_at_top)
        top = np.maximum(self.top, highest)
        rescale = np.exp(self.top - top)
        exponentials = np.exp(tile - top[:, None])
        self.total = self.total * rescale + exponentials.sum(axis=1)
        if weights is not None:
            exponentials *= weights
            self.weighted = self.weighted * rescale + exponentials.sum(axis=1)
        self.top = top

    @property
    def value(self) -> Float64:
        """[R] log-sum-exp."""
        result: Float64 = self.top + np.log(self.total)
        return result


class RowDivergence:
    """Accumulates R rows over tiles of the vocabulary.

    Args:
        targets: [R] the token that really follows each row.
    """

    def __init__(self, targets: Int32) -> None:
        rows = len(targets)
        self._targets = targets.astype(np.int64)
        self._reference = _LogSumExp(rows)
        self._engine = _LogSumExp(rows)
        self._target_reference = np.zeros(rows)
        self._target_engine = np.zeros(rows)
        self._leading = np.full((rows, TOP), -np.inf, np.float32)  # the engine's largest logits

    def add(self, reference: Float32, engine: Float32, start: int) -> None:
        """Take logits of one tile, both [R, n], that begins at vocabulary entry ``start``."""
        z, y = reference.astype(np.float64), engine.astype(np.float64)
        self._reference.add(z, y, start, z - y)
        self._engine.add(y, z, start, None)
        candidates = np.concatenate([self._leading, engine], axis=1)
        self._leading = np.partition(candidates, -TOP, axis=1)[:, -TOP:]
        inside = np.flatnonzero((self._targets >= start) & (self._targets < start + z.shape[1]))
        column = self._targets[inside] - start
        self._target_reference[inside] = z[inside, column]
        self._target_engine[inside] = y[inside, column]

    def result(self) -> RowScores:
        """Figures of the rows, once every tile was added."""
        reference, engine = self._reference, self._engine
        kl = reference.weighted / reference.total - reference.value + engine.value
        return RowScores(
            kl=np.maximum(kl, 0.0),  # rounding can leave -1e-16
            agree=reference.arg_top == engine.arg_top,
            among_top5=reference.other_at_top >= self._leading.min(axis=1),
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
        agree: [R] whether both rank the same token first (the lowest id on ties).
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


def summarize(parts: list[RowScores]) -> Divergence:
    """Figures over all rows of all parts; there must be at least one row."""
    kl = np.concatenate([part.kl for part in parts])
    return Divergence(
        tokens=len(kl),
        kl_mean=float(kl.mean()),
        kl_p99=float(np.percentile(kl, 99)),
        kl_max=float(kl.max()),
        top1_agreement=float(np.concatenate([part.agree for part in parts]).mean()),
        top5_agreement=float(np.concatenate([part.among_top5 for part in parts]).mean()),
        perplexity=float(np.exp(np.concatenate([p.nll_engine for p in parts]).mean())),
        reference_perplexity=float(np.exp(np.concatenate([p.nll_reference for p in parts]).mean())),
    )


def negative_log_likelihood(logits: Float32, targets: Int32, tile: int = 8192) -> Float64:
    """[R] -log p(target) of rows of logits [R, V], in nats."""
    stream = _LogSumExp(len(targets))
    for start in range(0, logits.shape[1], tile):
        piece = logits[:, start : start + tile].astype(np.float64)
        stream.add(piece, piece, start, None)
    result: Float64 = stream.value - logits[np.arange(len(targets)), targets].astype(np.float64)
    return result
