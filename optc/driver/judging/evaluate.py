"""Scoring of a written artifact: what ``optc eval`` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optc import registry
from optc.artifact import Artifact, EngineEntry
from optc.driver.judging.reference_model import import_reference, other_source, trimmed_vocabulary
from optc.gates.measure import evaluate
from optc.progress import Progress, no_progress
from optc.reference.text import EvalWindows, eval_windows
from optc.target import usable_threads


@dataclass(frozen=True)
class Evaluation:
    """What was scored.

    Attributes:
        figures: tokens, perplexity; with a reference also kl_mean, kl_p99, kl_max,
            top1_agreement, top5_agreement and reference_perplexity; text and convention say what
            was scored.
        warnings: What the user should know.
    """

    figures: dict[str, Any]
    warnings: tuple[str, ...] = ()


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
        text: ``.jsonl`` or plain text; None is the shipped one.
        reference: Folder of a model of the same vocabulary, run in float32; where it is not what
            the engine was compiled from, that is a warning.
        threads: CPU threads of engine and reference; None is all usable ones.
        engine: Name of the artifact's engine; None is the one that suits this machine best.
        allow_remote_code: Run Python code that the reference's folder brings.
        progress: Told what goes on.

    Raises:
        InputError: The text or the reference is unusable, or its vocabulary another one.
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
    windows = _windows(artifact, entry, text)
    executable = registry.backend(entry.backend).load(
        artifact.engine_folder(entry), entry.spec, entry.data, count
    )
    try:
        figures = evaluate(
            executable,
            windows,
            reference_model=None if imported is None else imported.model,
            threads=count,
            progress=progress,
        )
    finally:
        executable.close()
    return Evaluation(figures, () if warning is None else (warning,))


def _windows(artifact: Artifact, engine: EngineEntry, text: Path | None) -> EvalWindows:
    tokenizer = artifact.manifest.tokenizer
    # A weight takes a byte or so; all that depends on it is how many windows are affordable.
    parameters = sum(entry.bytes for entry in artifact.manifest.files)
    return eval_windows(
        vocab_size=engine.spec.vocab_size,
        max_context=engine.spec.max_context,
        parameters=parameters,
        tokenizer_file=artifact.tokenizer_file(),
        bos=None if tokenizer is None else tokenizer.bos_token_id,
        eos=None if tokenizer is None else next(iter(tokenizer.eos_token_ids), None),
        text_file=text,
    )
