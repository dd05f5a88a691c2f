"""Medusa (Cai et al., 2024): heads on the last hidden state guess the tokens after the next one.

The guesses form a tree, which the verifier walks as it does any other: acceptance is that of the
model's own tokens, not the paper's typical acceptance, so that the text is that of plain decoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from optc.runtime.executable.executable import Float32, HeadedExecutable, Int32
from optc.runtime.requests.request import Request
from optc.runtime.speculative.drafters.medusa_tree import Shape, likeliest, shape_of
from optc.runtime.speculative.planning.controller import Draftable
from optc.runtime.speculative.planning.plan_drafts import MARGIN, Costs, DraftPlan
from optc.runtime.speculative.proposer import DraftOutcome, DraftRequest, Drafts

#: Older verifications lose this fraction of their weight with each new one.
_FORGET = 0.02
#: The rates measured in training count as much as verifications that accept this many drafts.
_PRIOR = 4.0


class MedusaProposer:
    """Drafts the likeliest guesses of an engine's heads, and knows how far they can be trusted.

    Args:
        executable: The engine, with heads.
        limit: Most drafts of a request in a step.
    """

    def __init__(self, executable: HeadedExecutable, limit: int) -> None:
        self._executable = executable
        self._rows: Mapping[int, int] = {}
        nodes = likeliest(executable.spec.accept_rates, limit)
        self._paths = [path for path, _ in nodes]
        self._chances = [chance for _, chance in nodes]
        self._expected = self._accepted = _PRIOR
        self._shapes = [shape_of(self._paths[:count]) for count in range(len(nodes) + 1)]

    @property
    def gains(self) -> list[float]:
        """Tokens that each further draft wins on average, by the rates of training and what came
        of the latest drafts."""
        trust = self._accepted / self._expected
        return [chance * trust for chance in self._chances]

    def propose(self, wanted: Sequence[DraftRequest]) -> list[Drafts]:
        """A tree for each request whose last token was drawn in the last step."""
        rows = [self._rows.get(request.id) for request, _ in wanted]
        known = np.array([row for row in rows if row is not None], np.int32)
        guesses = iter(self._executable.guess(known) if len(known) else ())
        return [
            Drafts([]) if row is None else _tree(next(guesses), self._shape(limit))
            for (_, limit), row in zip(wanted, rows, strict=True)
        ]

    def note_rows(self, rows: Mapping[int, int]) -> None:
        """Learn from which rows of the step's logits the requests' last tokens were drawn."""
        self._rows = rows

    def learn(self, request: Request, checked: DraftOutcome) -> None:
        """Compare what was accepted with what the rates promised."""
        keep = 1 - _FORGET
        self._expected = self._expected * keep + sum(self._chances[: checked.drafted])
        self._accepted = self._accepted * keep + checked.accepted

    def forget(self, request: Request) -> None:
        """Nothing is kept of a request."""

    def _shape(self, count: int) -> Shape:
        return self._shapes[min(count, len(self._shapes) - 1)]


def _tree(guesses: Float32, shape: Shape) -> Drafts:
    """The drafts of a tree from the logits [K, V] of the heads."""
    best: list[Int32] = []
    for head, logits in enumerate(guesses):
        mine = (
            rank for rank, depth in zip(shape.ranks, shape.depths, strict=True) if depth == head
        )
        best.append(_largest(logits, max(mine, default=-1) + 1))
    tokens = [int(best[depth][rank]) for rank, depth in zip(shape.ranks, shape.depths, strict=True)]
    return Drafts(tokens, shape.parents)


def _largest(logits: Float32, count: int) -> Int32:
    """Ids of the ``count`` largest of logits [V], the largest first."""
    if count <= 1:  # most heads: finding more takes ten times as long
        return np.array([logits.argmax()] if count else [], np.int32)
    ids = np.argpartition(logits, -count)[-count:]
    return ids[np.argsort(-logits[ids], kind="stable")].astype(np.int32)


class TreePlanner:
    """The trees that pay (a `Planner`): as many nodes as give most tokens a second, the same
    number for all.

    Args:
        proposer: Says what nodes win.
    """

    def __init__(self, proposer: MedusaProposer) -> None:
        self._proposer = proposer

    def plan(
        self, requests: Sequence[Draftable], sequences: int, costs: Costs, budget: float
    ) -> DraftPlan:
        """The drafts that pay (`Planner.plan`)."""
        plain = costs.target.at(sequences)
        best, best_nodes, best_time = (1 + MARGIN) * sequences / plain, 0, plain
        tokens = float(sequences)
        for nodes, gain in enumerate(self._proposer.gains, 1):
            tokens += gain * len(requests)
            time = costs.verifying(sequences + nodes * len(requests), sequences) + costs.making
            if time - plain > budget:
                break
            if tokens / time > best:
                best, best_nodes, best_time = tokens / time, nodes, time
        gain = best * plain / sequences - 1 if best_nodes else 0.0
        return DraftPlan([best_nodes] * len(requests), gain, best_time - plain)

    def learn(self, request_id: int, drafted: int, accepted: int) -> None:
        """The proposer learns by itself."""

    def forget(self, request_id: int) -> None:
        """Nothing is kept of a request."""
