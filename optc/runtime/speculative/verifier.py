"""The one verifier: plain sampling along the drafted path.

At each drafted position the target model's token is drawn by the rule of plain decoding (the
largest logit, or Gumbel-max with the noise of that output position, `optc.runtime.sampler`). As
long as it equals the draft, the draft is accepted and the next row of the step is what plain
decoding would have computed. So the output is that of plain decoding, greedy or seeded, whoever
drafts (drafter-invariant coupling: Daliri et al., 2025; compare Leviathan et al., 2023, and Chen
et al., 2023).
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
            a draft was rejected, the bonus token after the last draft. A `NoToken` ends it.
        accepted: How many drafts were accepted.
    """

    drawn: list[Drawn]
    accepted: int


def verify(
    logits: Float32, best: list[int], row: Row, drafted: Int32, masks: Sequence[Mask] | None = None
) -> Verdict:
    """Draw tokens along a drafted path; without drafts this is plain sampling.

    Args:
        logits: [1 + k, V] after the known tokens and after each draft.
        best: [1 + k] their `optc.runtime.sampler.best_tokens`.
        row: The request; its ``tokens`` [n + k] end with the k drafts, so that penalties follow
            the path.
        drafted: [k] drafts.
        masks: [1 + k] what may be drawn after the known tokens and after each draft, so that a
            grammar follows the path, too; None is everything. The row's own mask is not used.
    """
    known = len(row.tokens) - len(drafted)
    drawn: list[Drawn] = []
    for index in range(len(drafted) + 1):
        mask = None if masks is None else masks[index]
        at = row._replace(tokens=row.tokens[: known + index], mask=mask)
        sampled = sample_row(logits[index], at, best[index])
        drawn.append(sampled)
        if isinstance(sampled, NoToken) or index == len(drafted):
            break
        if sampled.token != drafted[index]:
            break
    return Verdict(drawn, len(drawn) - 1)
