"""The check that the text that a compile calibrated with is of the model's domain."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # texts bring ONNX Runtime and tokenizers
    import onnx_ir as ir

    from optc.artifact.manifest import TokenizerEntry
    from optc.compiling.resolving.options import ResolvedOptions
    from optc.proof.reference.text_fit import TextFit

#: Share of a text's entropy (`TextFit.explained`) under which the text is called foreign, whatever
#: the model explains of others; and share of what it explains of the evaluation text. The example
#: model explains 0.67 of its calibration text, 0.37 of the shipped one, 0.14 of Wikipedia.
LEAST_EXPLAINED = 0.25
LEAST_OF_EVALUATION = 0.7
#: Windows of each text that are scored, fewer of large models, and tokens of each.
_WINDOWS, _WINDOW_TOKENS = 8, 256


@dataclass(frozen=True)
class DomainVerdict:
    """The verdict on the calibration text.

    Attributes:
        facts: For the report; empty where no text was calibrated with.
        warnings: Why the text is not of the model's domain.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def judge_domain(
    options: ResolvedOptions,
    reference: ir.Model,
    tokenizer: TokenizerEntry | None,
    folder: Path,
) -> DomainVerdict:
    """Compare how well the float32 model predicts the calibration text and the evaluation text.

    Args:
        options: Of the compile.
        reference: The model in dense form.
        tokenizer: None: random ids were calibrated with, and there is nothing to judge.
        folder: Of the unfinished artifact, where the tokenizer's files are.

    Raises:
        InputError: A text is unusable.
    """
    if tokenizer is None:
        return DomainVerdict()
    from optc.compiling.resolving.limits import weight_count
    from optc.proof.conversations.load import artifact_chat
    from optc.proof.conversations.read import read_texts
    from optc.proof.conversations.tokens import kept_stream, window_start
    from optc.proof.reference.blockwise import BlockwiseReference
    from optc.proof.reference.text import (
        calibration_text,
        default_documents,
        windows_for,
    )
    from optc.proof.reference.text_fit import text_fit
    from optc.system.hardware.target import usable_threads

    chosen, judged_by = options.asked.calibration, options.asked.eval_text
    texts = (
        read_texts(chosen or calibration_text()),
        default_documents() if judged_by is None else read_texts(judged_by),
    )
    chat = artifact_chat(folder, tokenizer)
    bos, eos = tokenizer.bos_token_id, next(iter(tokenizer.eos_token_ids), None)
    tokenizer_file = folder / tokenizer.files[0]
    start = window_start(tokenizer_file, bos)
    windows = min(_WINDOWS, windows_for(weight_count(reference)) // 2)
    model = BlockwiseReference(reference, usable_threads())
    try:
        mine, theirs = (
            text_fit(
                model,
                kept_stream(documents, tokenizer_file, bos, eos, chat),
                windows,
                _WINDOW_TOKENS,
                start,
            )
            for documents in texts
        )
    finally:
        model.close()
    name = "shipped with optc" if chosen is None else chosen.name
    return verdict_on(mine, theirs, name)


def verdict_on(calibration: TextFit, evaluation: TextFit, name: str) -> DomainVerdict:
    """The verdict on a calibration text ``name`` by what the model explains of both texts."""
    facts = {
        "text": name,
        "calibration": _figures(calibration),
        "evaluation": _figures(evaluation),
    }
    mine, theirs = calibration.explained, evaluation.explained
    if mine >= max(LEAST_EXPLAINED, LEAST_OF_EVALUATION * theirs):
        return DomainVerdict(facts)
    warning = (
        f"the calibration text ({name}) is hardly of the model's domain: the model explains "
        f"{max(mine, 0):.0%} of it and {max(theirs, 0):.0%} of the evaluation text "
        f"(loss {calibration.loss:.2f} of {calibration.entropy:.2f} nats a token, and "
        f"{evaluation.loss:.2f} of {evaluation.entropy:.2f}); "
        "--calibration FILE takes one such as the model was trained on"
    )
    return DomainVerdict(facts, (warning,))


def _figures(fit: TextFit) -> dict[str, float]:
    return {
        "tokens": fit.tokens,
        "loss": round(fit.loss, 4),
        "entropy": round(fit.entropy, 4),
        "explained": round(fit.explained, 4),
    }
