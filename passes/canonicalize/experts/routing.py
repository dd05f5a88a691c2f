"""The results of `optc::TopKRouter`, in NumPy, and the search for a router's configuration.

Routers are spelled in many ways. So a router is not matched operator by operator: it is run on
logits that tell all configurations apart, and the configuration is the one that gives the same
experts and the same weights. Constants of the router say which scales and epsilons come into
question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from optc.passes.canonicalize.experts.rivals import (
    LARGEST_THRESHOLD,
    edge_probes,
    weights_among_rivals,
)

Float32 = npt.NDArray[np.float32]
Index = npt.NDArray[np.intp]

#: Relative difference of weights up to which two routers are the same.
_TOLERANCE = 2e-4
#: A divisor's epsilon is smaller than this.
_LARGEST_EPSILON = 1e-3
_ROWS = 16
#: Sizes of logits that lie close together, and how many correction biases are tried.
_CLOSE, _BIASES = (0.02, 0.05, 0.1, 0.1, 0.1, 0.2), 3


@dataclass(frozen=True)
class Routing:
    """A configuration of ``optc::TopKRouter``; the attributes are the operator's.

    Attributes:
        corrected: A correction bias is added to the scores before the choice.
    """

    top_k: int
    scoring: str = "softmax"
    normalize: int = 0
    norm_epsilon: float = 0.0
    scale: float = 1.0
    groups: int = 1
    top_groups: int = 1
    group_score: str = "max"
    corrected: bool = False
    threshold: float = 0.0

    def attributes(self) -> dict[str, int | float | str]:
        """As the operator has them."""
        return {name: value for name, value in vars(self).items() if name != "corrected"}

    def choose(self, logits: Float32, bias: Float32) -> Index:
        """The experts [T, k] of logits [T, E], largest biased score first, with a bias [E]."""
        ranked = self._scores(logits)
        if self.corrected:
            ranked = ranked + bias
        if self.groups > 1:
            ranked = self._within_groups(ranked)
        return np.argsort(-ranked, axis=-1, kind="stable")[:, : self.top_k]

    def weigh(self, logits: Float32, experts: Index) -> Float32:
        """The weights [T, k] of the experts [T, k]."""
        if self.scoring == "sparse_mixer":
            picked = weights_among_rivals(logits, experts, self.threshold)
        else:
            picked = np.take_along_axis(self._scores(logits), experts, -1)
        if self.scoring == "sigmoid_after":
            picked = _sigmoid(picked)
        if self.scoring == "softmax_after":
            picked = _softmax(picked)
        if self.normalize:
            picked = picked / (picked.sum(-1, keepdims=True) + np.float32(self.norm_epsilon))
        return picked * np.float32(self.scale)

    def _scores(self, logits: Float32) -> Float32:
        if self.scoring == "softmax":
            return _softmax(logits)
        if self.scoring == "sigmoid":
            return _sigmoid(logits)
        return logits

    def _within_groups(self, ranked: Float32) -> Float32:
        grouped = ranked.reshape(len(ranked), self.groups, -1)
        best = np.sort(grouped, axis=-1)[:, :, ::-1]
        of_group = best[:, :, 0] if self.group_score == "max" else best[:, :, :2].sum(-1)
        order = np.argsort(-of_group, axis=-1, kind="stable")
        allowed = np.zeros(of_group.shape, bool)
        np.put_along_axis(allowed, order[:, : self.top_groups], True, -1)
        inside = np.where(allowed[:, :, None], grouped, np.float32(-np.inf))
        return inside.reshape(ranked.shape)


@dataclass(frozen=True)
class Hints:
    """The signs of a router's configuration in its graph.

    Attributes:
        top_k: k.
        experts: E.
        scorings: In the order in which they are tried.
        constants: Its scalar constants.
        counts: How many its TopK operators take.
        biased: It reads a vector [E].
        thresholds: The numbers that it compares with.
    """

    top_k: int
    experts: int
    scorings: Sequence[str]
    constants: Sequence[float]
    counts: Sequence[int]
    biased: bool
    thresholds: Sequence[float] = ()


#: Runs a router: logits [T, E] and a bias [E] to weights [T, k] and experts [T, k].
Run = Callable[[Float32, Float32], tuple[Float32, Index]]


def recognize(run: Run, hints: Hints) -> Routing | None:
    """The configuration that gives what ``run`` gives; None if there is none.

    The order of a row's experts does not count: their results are summed.
    """
    asked = probes(hints.experts, _BIASES if hints.biased else 1)
    answers = []
    for logits, bias in asked:
        weights, experts = run(logits, bias)
        answers.append(_ordered(np.asarray(weights, np.float32), np.asarray(experts, np.intp)))
    (logits, _), found = asked[0], answers[0]
    for one in _choices(hints):
        if not all(
            np.array_equal(np.sort(one.choose(*probe), axis=-1), answer[1])
            for probe, answer in zip(asked, answers, strict=True)
        ):
            continue
        for whole in _weighings(one, hints, logits, found):
            if np.allclose(whole.weigh(logits, found[1]), found[0], rtol=_TOLERANCE, atol=0) and (
                _holds_at_edges(run, whole, hints)
            ):
                return whole
    return None


def _holds_at_edges(run: Run, one: Routing, hints: Hints) -> bool:
    """False if ``one`` has a threshold and ``run`` does not give what it gives on either side."""
    if one.scoring != "sparse_mixer":
        return True
    logits = edge_probes(hints.experts, hints.top_k, one.threshold)
    bias = np.zeros(hints.experts, np.float32)
    weights, experts = run(logits, bias)
    found = _ordered(np.asarray(weights, np.float32), np.asarray(experts, np.intp))
    same = np.array_equal(np.sort(one.choose(logits, bias), axis=-1), found[1])
    return same and np.allclose(one.weigh(logits, found[1]), found[0], rtol=_TOLERANCE, atol=0)


def probes(experts: int, biases: int = _BIASES) -> list[tuple[Float32, Float32]]:
    """Logits [T, E] of several sizes, without ties, some so low that sigmoids come near a divisor's
    epsilon, some so close together that the sum of a group's best is not that of the best alone;
    each time with a bias [E] that changes the choice, less and less."""
    rng = np.random.default_rng(experts)

    def levels() -> npt.NDArray[np.float64]:
        uneven = np.arange(experts) + rng.uniform(-0.4, 0.4, experts)
        return rng.permutation(uneven / experts * 5 - 2.5)

    sizes = [(0.5, 0), (1, 0), (2, 0), (1, -20), (1, -45), *((size, 0) for size in _CLOSE)]
    return [
        (
            np.array([levels() * s + at for s, at in sizes for _ in range(_ROWS)], np.float32),
            (levels() / 4**number).astype(np.float32),
        )
        for number in range(1, biases + 1)
    ]


def _softmax(x: Float32) -> Float32:
    raised = np.exp(x - x.max(-1, keepdims=True))
    result: Float32 = raised / raised.sum(-1, keepdims=True)
    return result


def _sigmoid(x: Float32) -> Float32:
    result: Float32 = np.exp(-np.logaddexp(np.float32(0), -x))
    return result


def _ordered(weights: Float32, experts: Index) -> tuple[Float32, Index]:
    """The pairs of each row by expert."""
    order = np.argsort(experts, axis=-1)
    return np.take_along_axis(weights, order, -1), np.take_along_axis(experts, order, -1)


def _choices(hints: Hints) -> Iterator[Routing]:
    """All ways to choose that come into question, the plain ones first."""
    for scoring in hints.scorings:
        if scoring == "sparse_mixer":
            for threshold in (t for t in hints.thresholds if 0 < t < LARGEST_THRESHOLD):
                yield Routing(hints.top_k, scoring, threshold=threshold)
            continue
        for corrected in (True, False) if hints.biased else (False,):
            plain = Routing(hints.top_k, scoring, corrected=corrected)
            yield plain
            for groups in range(2, hints.experts // 2 + 1):
                if hints.experts % groups:
                    continue
                for top_groups in (n for n in hints.counts if n < groups):
                    for score in ("top2_sum", "max"):
                        yield replace(
                            plain, groups=groups, top_groups=top_groups, group_score=score
                        )


def _weighings(
    one: Routing, hints: Hints, logits: Float32, found: tuple[Float32, Index]
) -> Iterator[Routing]:
    """``one`` with all ways to weigh that come into question, scaled as ``found`` is."""
    epsilons = [c for c in dict.fromkeys(hints.constants) if 0 < c < _LARGEST_EPSILON]
    for normalize, epsilon in ((0, 0.0), *((1, e) for e in (*epsilons, 0.0))):
        whole = replace(one, normalize=normalize, norm_epsilon=epsilon)
        # in the middle of the rows, where no sum is near an epsilon
        ratio = float(np.median(found[0][:_ROWS] / whole.weigh(logits[:_ROWS], found[1][:_ROWS])))
        for scale in (1.0, *hints.constants, *(1 / c for c in hints.constants if c)):
            if abs(scale - ratio) <= _TOLERANCE * abs(ratio):
                yield replace(whole, scale=scale)
                break
