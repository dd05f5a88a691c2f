"""The gates of engines that turn texts into texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import tokenizers

from optc.artifact.tasks.text_to_text import ENCODER
from optc.artifact.writer import ArtifactWriter
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.compiling.judging.judge import Judgement, not_judged
from optc.compiling.parts.judging import SourceExecutable, baseline_of, unmeasured
from optc.proof.gates.measure import GateResult, is_open
from optc.proof.gates.text_to_text.measure import measure_rewriter
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.tensors.engine import open_folder
from optc.runtime.text_to_text.rewriter import Rewriter, RewritingChanges
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import usable_threads
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.compiling.recipes.recipe import Recipe
    from optc.importer.tensors.text_to_text import ImportedRewriter

#: Tokens that are written for each text that judges.
_TOKENS = 48


def judge_rewriter(
    recipe: Recipe,
    texts: Sequence[str],
    writer: ArtifactWriter,
    asked: CompileOptions,
    imported: ImportedRewriter,
    originals: Mapping[str, ir.Model],
    engines: Sequence[BuiltEngine],
) -> Judgement:
    """Compare pairs of encoder and decoder with the source in PyTorch.

    Args:
        recipe: Whose bounds count.
        texts: To read.
        writer: Of the artifact.
        asked: Whether gates are measured at all, and must be.
        imported: With the source's own outputs.
        originals: The graphs of encoder and decoder as imported, by role, for the baseline; they
            are built, and so changed.
        engines: Built under ``writer``; an encoder stands before its decoder.
    """
    targets = [built for built in engines if built.entry.role == TARGET]
    if asked.no_gates:
        return not_judged(recipe.gates, targets)
    threads = usable_threads()
    halves = (imported.halves.encoder, imported.halves.decoder)
    reference = source_rewriter(imported)
    most = min(_TOKENS, imported.conventions.most_tokens)
    how: RewritingChanges = {"max_tokens": most, "truncate": True}
    verdicts: list[GateResult] = []
    with writer.scratch() as folder:
        baseline = _rewriter(
            imported,
            [
                baseline_of(originals[role], half, folder / role, threads)
                for role, half in zip((ENCODER, TARGET), halves, strict=True)
            ],
        )
        for built in targets:
            if reason := this_machine().misfit(built.request.target):
                verdicts += unmeasured(recipe.gates, reason, built.entry.name)
                continue
            pair = [one for one in engines if one.request is built.request]
            opened = [
                open_folder(writer.folder / one.entry.folder, one.entry, threads) for one in pair
            ]
            with _rewriter(imported, opened) as found:
                verdicts += measure_rewriter(
                    found, reference, baseline, texts, recipe.gates, built.entry.name, how
                )
        baseline.close()
    strict = not (asked.allow_unmeasured or asked.keep_failed)
    failed = [one for one in verdicts if one.passed is False or (strict and is_open(one))]
    shown = tuple(one for one in verdicts if one.value is not None or one.bound is not None)
    facts = {"samples": len(texts), "reference": "source"}
    return Judgement(shown, measured=True, failed=tuple(failed), facts=facts)


def source_rewriter(imported: ImportedRewriter) -> Rewriter:
    """The source itself in the loop that engines run in."""
    halves = (imported.halves.encoder, imported.halves.decoder)
    return _rewriter(imported, [SourceExecutable(half) for half in halves])


def _rewriter(imported: ImportedRewriter, engines: Sequence[TensorsExecutable]) -> Rewriter:
    tokenizer = tokenizers.Tokenizer.from_str(imported.tokenizer)
    return Rewriter(engines[0], engines[1], imported.conventions, tokenizer, {})
