"""The one verifier: plain sampling along the drafted path.

At each drafted position the target model's token is drawn by the rule of plain decoding (the
largest logit, or Gumbel-max with the noise of that output position, `optc.runtime.sampler`). As
long as a draft that may follow here equals it, that draft is accepted and its row of the step is
what plain decoding would have computed. So the output is that of plain decoding, greedy or seeded,
whoever drafts, and in a tree of drafts whatever else is in it (drafter-invariant coupling: Daliri
et al., 2025; compare Leviathan et al., 2023, and Chen et al., 2023; trees: Miao et al., 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from optc.runtime.executable import Float32, Int32
from optc.runtime.sampler import Drawn, Mask, NoToken, Row, sample_row


class Verdict(NamedTuple):
    """What a step gives a request.

    Attributes:
        drawn: The accepted tokens, then one that the model drew itself: the recovered token where
            no draft equals it, the bonus token after the last draft. A `NoToken` ends it.
        path: Indices of the accepted drafts, ascending.
    """

    drawn: list[Drawn]
    path: tuple[int, ...] = ()

    @property
    def accepted(self) -> int:
        """How many drafts were accepted."""
        return len(self.path)


def verify(
    logits: Float32,
    best: list[int],
    row: Row,
    drafted: Int32,
    masks: Sequence[Mask] | None = None,
    parents: Sequence[int] | None = None,
) -> Verdict:
    """Draw tokens along the drafted paths; without drafts this is plain sampling.

    Args:
        logits: [1 + k, V] after the known tokens and after each draft.
        best: [1 + k] their `optc.runtime.sampler.best_tokens`.
        row: The request; its ``tokens`` [n + k] end with the k drafts. Penalties follow the path.
        drafted: [k] drafts.
        masks: [1 + k] what may be drawn after the known tokens and after each draft, so that a
            grammar follows the path, too; None is everything. The row's own mask is not used.
        parents: [k] draft that each one follows, an earlier one, or -1 for the known tokens; None
            is a chain.
    """
    known = len(row.tokens) - len(drafted)
    # In a chain the path's tokens lie side by side already.
    tokens = row.tokens if parents is None else row.tokens.copy()
    drawn: list[Drawn] = []
    path: list[int] = []
    at: int | None = -1
    while at is not None:
        mask = None if masks is None else masks[at + 1]
        here = row._replace(tokens=tokens[: known + len(path)], mask=mask)
        sampled = sample_row(logits[at + 1], here, best[at + 1])
        drawn.append(sampled)
        at = None if isinstance(sampled, NoToken) else _next(drafted, parents, at, sampled.token)
        if at is not None:
            if parents is not None:
                tokens[known + len(path)] = drafted[at]
            path.append(at)
    return Verdict(drawn, tuple(path))


def _next(drafted: Int32, parents: Sequence[int] | None, at: int, token: int) -> int | None:
    """The draft after ``at`` that equals ``token``; None if there is none."""
    for index in range(at + 1, len(drafted)):
        parent = index - 1 if parents is None else parents[index]
        if parent == at and drafted[index] == token:
            return index
        if parents is None:
            return None
    return None
