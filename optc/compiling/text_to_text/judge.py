"""The gates of engines that turn texts into texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import tokenizers

from optc.artifact.tasks.task import ENCODER
from optc.artifact.writer import ArtifactWriter
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.compiling.judging.judge import Judgement
from optc.compiling.parts.judging import Executables, Measuring, judge_parts, source_of
from optc.proof.gates.measure import GateResult
from optc.proof.gates.text_to_text.measure import measure_rewriter
from optc.runtime.tensors.engine import open_folder
from optc.runtime.text_to_text.rewriter import Rewriter, RewritingChanges
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.compiling.recipes.recipe import Recipe
    from optc.importer.tensors.text_to_text import ImportedRewriter

#: Tokens that are written for each text that judges.
_TOKENS = 48


def judge_rewriter(
    imported: ImportedRewriter,
    texts: Sequence[str],
    recipe: Recipe,
    writer: ArtifactWriter,
    asked: CompileOptions,
    originals: Mapping[str, ir.Model],
    engines: Sequence[BuiltEngine],
) -> Judgement:
    """Compare pairs of encoder and decoder with the source in PyTorch.

    Args:
        imported: With the source's own outputs.
        texts: To read.
        recipe: Whose bounds count.
        writer: Of the artifact.
        asked: Whether gates are measured at all, and must be.
        originals: The graphs of encoder and decoder as imported, by role, for the baseline; they
            are built, and so changed.
        engines: Built under ``writer``; an encoder stands before its decoder.
    """
    reference = source_rewriter(imported)
    most = min(_TOKENS, imported.conventions.most_tokens)
    how: RewritingChanges = {"max_tokens": most, "truncate": True}

    def measure(found: Executables, baseline: Executables, name: str) -> Sequence[GateResult]:
        both = [_rewriter(imported, one) for one in (found, baseline)]
        return measure_rewriter(both[0], reference, both[1], texts, recipe.gates, name, how)

    facts = {"samples": len(texts)}
    return judge_parts(
        recipe,
        writer,
        asked,
        imported.halves.by_role,
        originals,
        engines,
        Measuring(open_folder, measure),
        facts,
    )


def source_rewriter(imported: ImportedRewriter) -> Rewriter:
    """The source itself in the loop that engines run in."""
    return _rewriter(imported, source_of(imported.halves.by_role))


def _rewriter(imported: ImportedRewriter, engines: Executables) -> Rewriter:
    tokenizer = tokenizers.Tokenizer.from_str(imported.tokenizer)
    return Rewriter(engines[ENCODER], engines[TARGET], imported.conventions, tokenizer, {})
