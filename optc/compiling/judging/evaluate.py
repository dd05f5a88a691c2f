"""Scoring of a written artifact: what ``optc eval`` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc import registry
from optc.artifact.artifact import Artifact
from optc.artifact.manifest import EngineEntry
from optc.compiling.judging.judged_text import ModelLimits, judged_text
from optc.compiling.judging.reference_model import (
    import_reference,
    other_source,
    trimmed_vocabulary,
)
from optc.proof.gates.answers.measure import answer_perplexity, measure_answers
from optc.proof.gates.answers.score import AnswerReference
from optc.proof.gates.measure import evaluate
from optc.proof.reference.blockwise import BlockwiseReference
from optc.runtime.executable.executable import Executable
from optc.system.hardware.target import usable_threads
from optc.system.progress import Progress, no_progress
from optc.system.sources.steady import reads_steadily

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.proof.conversations.scored import ScoredConversations


#: Figures of answers that only a report has room for.
_LONG = ("kl_distribution", "worst_contexts", "left_out", "seconds")


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        figures: tokens, perplexity; with a reference also kl_mean, kl_p99, kl_max,
            top1_agreement, top5_agreement and reference_perplexity; text and convention say what
            was scored. ``answers`` has the same of what the assistant says in conversations, and
            with a reference ``decisions``; a text of conversations alone gives the others, too.
        warnings: What the user should know.
    """

    figures: dict[str, Any]
    warnings: tuple[str, ...] = ()


@reads_steadily("reference", "text")
def evaluate_artifact(
    artifact: Artifact,
    *,
    text: Path | None = None,
    reference: Path | None = None,
    threads: int | None = None,
    engine: str | None = None,
    allow_remote_code: bool = False,
    progress: Progress = no_progress,
) -> Evaluation:
    """Perplexity of an artifact on a text, and with a reference its divergence from it.

    Args:
        artifact: The artifact.
        text: ``.jsonl`` or plain text; None is what is shipped: prose and, where the model has a
            chat template, conversations.
        reference: Folder of a model of the same vocabulary, run in float32; where it is not what
            the engine was compiled from, that is a warning.
        threads: CPU threads of engine and reference; None is all usable ones.
        engine: Name of the artifact's engine; None is the one that suits this machine best.
        allow_remote_code: Run Python code that the reference's folder brings.
        progress: Told what goes on.

    Raises:
        InputError: The text or the reference is unusable, its vocabulary another one, or one of
            both changed meanwhile.
        UnavailableError: No engine runs here, or not that one.
    """
    count = threads or usable_threads()
    entry = artifact.engine(engine)
    imported = None
    if reference is not None:
        imported = import_reference(
            reference,
            entry,
            progress,
            allow_remote_code=allow_remote_code,
            kept=trimmed_vocabulary(artifact),
        )
    warning = None if imported is None else other_source(imported, entry, artifact.manifest)
    judged = judged_text(_limits(artifact, entry), artifact.path, artifact.manifest.tokenizer, text)
    executable = registry.step_backend(entry.backend).load(
        artifact.engine_folder(entry), entry.spec, entry.data, count
    )
    model = None if imported is None else imported.model
    try:
        answers = _answers(executable, judged.conversations, model, count, progress)
        figures = answers
        if judged.prose:
            figures = evaluate(
                executable, judged.windows, reference_model=model, threads=count, progress=progress
            )
    finally:
        executable.close()
    if answers:
        figures = {**figures, "answers": answers}
    warnings = [
        f"figures without a value: {reason}"
        for one in (figures, answers)
        if (reason := one.get("not_measured"))
    ]
    return Evaluation(figures, tuple(dict.fromkeys([*([warning] if warning else []), *warnings])))


def _answers(
    executable: Executable,
    conversations: ScoredConversations | None,
    model: ir.Model | None,
    threads: int,
    progress: Progress,
) -> dict[str, Any]:
    """Figures of what the assistant says; empty where there are no conversations."""
    if conversations is None:
        return {}
    if model is None:
        return answer_perplexity(executable, conversations, progress)
    reference = BlockwiseReference(model, threads)
    try:
        answers = AnswerReference(reference, conversations)
        figures = measure_answers(answers, executable, {}, progress=progress).figures
        return {key: value for key, value in figures.items() if key not in _LONG}
    finally:
        reference.close()


def _limits(artifact: Artifact, engine: EngineEntry) -> ModelLimits:
    # A weight takes a byte or so; all that depends on it is how much is affordable.
    parameters = sum(entry.bytes for entry in artifact.manifest.files)
    return ModelLimits(engine.spec.vocab_size, engine.spec.max_context, parameters)
