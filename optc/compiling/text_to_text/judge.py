"""The gates of engines that turn texts into texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tokenizers

from optc.artifact.manifest import EngineEntry
from optc.artifact.tasks.task import ENCODER
from optc.artifact.writer import ArtifactWriter
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.compiling.judging.judge import Judgement
from optc.compiling.parts.judging import Executables, Measuring, judge_parts, source_of
from optc.proof.gates.measure import GateResult
from optc.proof.gates.text_to_text.measure import measure_rewriter
from optc.runtime.engine import Engine
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.text_to_text.open import as_encoder, as_writer, open_part
from optc.runtime.text_to_text.rewriter import Rewriter
from optc.runtime.text_to_text.rewriting import RewritingChanges
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.compiling.recipes.recipe import Recipe
    from optc.importer.tensors.text_to_text import ImportedRewriter

#: Opened engines by role.
Engines = Mapping[str, TensorsExecutable | Engine]
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

    def opens(folder: Path, entry: EngineEntry, threads: int) -> TensorsExecutable | Engine:
        return open_part(folder, entry, threads, imported.conventions)

    def measure(found: Engines, baseline: Executables, name: str) -> Sequence[GateResult]:
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
        Measuring(opens, measure),
        facts,
    )


def source_rewriter(imported: ImportedRewriter) -> Rewriter:
    """The source itself in the loop that engines run in."""
    return _rewriter(imported, source_of(imported.halves.by_role))


def _rewriter(imported: ImportedRewriter, engines: Engines) -> Rewriter:
    tokenizer = tokenizers.Tokenizer.from_str(imported.tokenizer)
    encoder, writer = as_encoder(engines[ENCODER]), as_writer(engines[TARGET])
    return Rewriter(encoder, writer, imported.conventions, tokenizer, {})
