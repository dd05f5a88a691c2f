"""Gates of answers and decisions: measured on conversations, judged by a recipe's bounds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optc.proof.conversations.scored import ScoredConversations
from optc.proof.gates.answers.decisions import DecisionFigures, decision_figures, flip_text
from optc.proof.gates.answers.score import AnswerReference, engine_answers, score_answers
from optc.proof.gates.compare import Compared
from optc.proof.gates.divergence import negative_log_likelihood, summarize
from optc.proof.gates.finite import only_finite, perplexity_figures
from optc.proof.gates.measure import ANSWER_GATES, GateResult, judge
from optc.runtime.executable.executable import Executable
from optc.system.progress import Progress, no_progress

_NO_FIRM = "no decision of the float model is firm"


@dataclass(frozen=True)
class AnswerReport:
    """Gates and figures of conversations.

    Attributes:
        gates: Of `ANSWER_GATES`, in order.
        compared: Divergence over all that the assistant says.
        figures: JSON values for report.json.
    """

    gates: tuple[GateResult, ...]
    compared: Compared
    figures: dict[str, Any]


def measure_answers(
    answers: AnswerReference,
    executable: Executable,
    bounds: Mapping[str, float | None],
    *,
    progress: Progress = no_progress,
) -> AnswerReport:
    """Run the engine over the conversations and judge the recipe's bounds.

    Args:
        answers: The reference; it runs once for several engines in turn.
        executable: The loaded engine; its KV pools are replaced.
        bounds: Bound by gate name; None is measured and reported, not judged.
        progress: Told where it stands.
    """
    began = time.monotonic()
    scores = score_answers(answers, executable, progress)
    divergence, given = summarize(scores.rows), answers.conversations
    decisions = decision_figures(scores.decided, scores.worst.decode)
    compared = Compared(divergence, scores.worst, tuple(scores.rows), len(scores.rows), ())
    figures = {
        "text": given.source,
        "convention": given.convention,
        **dataclasses.asdict(divergence),
        **compared.figures(),
        "decisions": dataclasses.asdict(decisions),
        "left_out": given.left_out,
        "seconds": time.monotonic() - began,
    }
    return AnswerReport(_judge(compared, decisions, bounds), compared, only_finite(figures))


def answer_perplexity(
    executable: Executable, conversations: ScoredConversations, progress: Progress = no_progress
) -> dict[str, Any]:
    """``tokens`` and ``perplexity`` of what the assistant says, by an engine alone; ``text`` and
    ``convention`` say what was scored."""
    losses = [
        negative_log_likelihood(logits, targets)
        for logits, targets in engine_answers(executable, conversations, progress)
    ]
    return {
        "tokens": conversations.tokens,
        **perplexity_figures(losses),
        "text": conversations.source,
        "convention": conversations.convention,
    }


def not_applicable(bounds: Mapping[str, float | None], reason: str) -> tuple[GateResult, ...]:
    """The gates of answers that a recipe names, for a model that has no conversations: without a
    bound, so that they neither hold nor fail, and with the reason."""
    return tuple(judge(name, None, None, reason) for name in ANSWER_GATES if name in bounds)


def _judge(
    compared: Compared, decisions: DecisionFigures, bounds: Mapping[str, float | None]
) -> tuple[GateResult, ...]:
    divergence, broken = compared.divergence, compared.worst.broken
    values: dict[str, float | None] = {
        "answer_kl_mean": divergence.kl_mean,
        "answer_kl_p99": divergence.kl_p99,
        "answer_top1_agreement": divergence.top1_agreement,
        "decision_flips": float(decisions.flips),
        "margin_factor": decisions.margin_factor,
    }
    found = [
        judge(name, values[name], bounds.get(name), broken or _NO_FIRM, broken)
        for name in ANSWER_GATES
    ]
    return tuple(_with_flip(gate, decisions) for gate in found)


def _with_flip(gate: GateResult, decisions: DecisionFigures) -> GateResult:
    """A gate of flips that failed, with the worst one in its reason."""
    if gate.name != "decision_flips" or gate.passed is not False:
        return gate
    return dataclasses.replace(gate, reason=f"{gate.reason}: {flip_text(decisions.worst[0])}")
