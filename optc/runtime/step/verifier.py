"""The one verifier: plain sampling along the drafted path.

At each drafted position the target model's token is drawn by the rule of plain decoding (the
largest logit, or Gumbel-max with the noise of that output position,
`optc.runtime.sampling.sampler`). As long as a draft that may follow here equals it, that draft is
accepted and its row of the step is what plain decoding would have computed. So the output is that
of plain decoding, greedy or seeded, whoever drafts, and in a tree of drafts whatever else is in it
(drafter-invariant coupling: Daliri et al., 2025; compare Leviathan et al., 2023, and Chen et al.,
2023; trees: Miao et al., 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optc.runtime.executable.executable import Int32
from optc.runtime.sampling.sampler import Drawn, Mask, NoToken, Row


class Verdict(NamedTuple):
    """The outcome of a step for a request.

    Attributes:
        drawn: The accepted tokens, then one that the model drew itself: the recovered token where
            no draft equals it, the bonus token after the last draft. A `NoToken` ends it.
        path: Indices of the accepted drafts, ascending.
    """

    drawn: list[Drawn]
    path: tuple[int, ...] = ()

    @property
    def accepted(self) -> int:
        """The number of accepted drafts."""
        return len(self.path)


def drafted_rows(
    row: Row,
    drafted: Int32,
    masks: Sequence[Mask] | None = None,
    parents: Sequence[int] | None = None,
) -> list[Row]:
    """[1 + k] what to sample after the known tokens and after each draft. Penalties and noise
    follow each one's own path.

    Args:
        row: The request; its ``tokens`` [n + k] end with the k drafts.
        drafted: [k] drafts.
        masks: [1 + k] what may be drawn there, so that a grammar follows the path, too; None is
            everything. The row's own mask is not used.
        parents: [k] draft that each one follows, an earlier one, or -1 for the known tokens; None
            is a chain.
    """
    known = len(row.tokens) - len(drafted)
    # In a chain the path's tokens lie side by side already.
    paths = [row.tokens[: known + length] for length in range(len(drafted) + 1)]
    if parents is not None:
        paths = paths[:1]
        for token, parent in zip(drafted, parents, strict=True):
            paths.append(np.append(paths[parent + 1], token))
    allowed = [None] * len(paths) if masks is None else masks
    return [row._replace(tokens=path, mask=mask) for path, mask in zip(paths, allowed, strict=True)]


def verify(
    sampled: Sequence[Drawn], drafted: Int32, parents: Sequence[int] | None = None
) -> Verdict:
    """Follow what was drawn along the drafted paths; without drafts this is plain sampling.

    Args:
        sampled: [1 + k] what was drawn from the `drafted_rows`.
        drafted: [k] drafts.
        parents: As there.
    """
    drawn: list[Drawn] = []
    path: list[int] = []
    at: int | None = -1
    while at is not None:
        here = sampled[at + 1]
        drawn.append(here)
        at = None if isinstance(here, NoToken) else _next(drafted, parents, at, here.token)
        if at is not None:
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
