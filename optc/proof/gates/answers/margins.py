"""`Margin`: how sure a model is of a decision, and what an engine leaves of that.

What a model does with an option is what greedy decoding does: an option counts as much as its
likeliest token. The margin of a decision is the difference between the log-probabilities of the
best option and the second best one, in the float model. The engine's margin is that of the same
option: what it gives the float model's best one, less what it gives its own best of the others; it
is negative where the engine decides otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.proof.conversations.decision import Decision
from optc.runtime.executable.executable import Float32

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Margin:
    """One decision by both models.

    Attributes:
        decision: What is decided.
        where: File and line of the conversation.
        reference: The option that the float model takes; the token's id where each is one.
        engine: The option that the engine takes.
        margin: The float model's, in nats, at least 0.
        engine_margin: What the engine leaves of it, in nats; negative where it decides otherwise.
        probabilities: Of the options ``reference`` and ``engine``: by the float model, then by the
            engine.
    """

    decision: Decision
    where: str
    reference: int
    engine: int
    margin: float
    engine_margin: float
    probabilities: tuple[tuple[float, float], tuple[float, float]]

    @property
    def flipped(self) -> bool:
        """True if the engine decides otherwise; so it does where its logits are no numbers."""
        return not self.engine_margin >= 0

    @property
    def kept(self) -> float:
        """Share of the margin that the engine leaves: 1 where nothing changed."""
        share = self.engine_margin / self.margin if self.margin else 0.0
        return share if np.isfinite(share) else -np.inf


def margin_of(decision: Decision, where: str, reference: Float32, engine: Float32) -> Margin:
    """The margin of one decision.

    Args:
        decision: What is decided.
        where: File and line of the conversation.
        reference: [V] logits of the float model where it is decided.
        engine: [V] logits of the engine there.
    """
    before, after = (_options(decision, _log_softmax(z)) for z in (reference, engine))
    best = int(before.argmax())
    rest = np.delete(after, best)
    margin = float(before[best] - np.delete(before, best).max())
    left = float(after[best] - rest.max())
    chosen = int(after.argmax()) if left < 0 else best
    if np.isnan(left):
        chosen = int(np.isnan(after).argmax())
    probabilities = tuple(
        (float(np.exp(before[one])), float(np.exp(after[one]))) for one in (best, chosen)
    )
    return Margin(decision, where, best, chosen, margin, left, (probabilities[0], probabilities[1]))


def _options(decision: Decision, scores: Float64) -> Float64:
    """[options] log-probability of the likeliest token of each; of tokens that are each one, all
    of them."""
    if not decision.options:
        return scores
    named = [token for option in decision.options for token in option.tokens]
    rest = np.delete(scores, named)
    return np.array(
        [
            scores[list(option.tokens)].max() if option.tokens else rest.max()
            for option in decision.options
        ]
    )


def _log_softmax(logits: Float32) -> Float64:
    shifted = logits.astype(np.float64) - logits.max()
    result: Float64 = shifted - np.log(np.exp(shifted).sum())
    return result
