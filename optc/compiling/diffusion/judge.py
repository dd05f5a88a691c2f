"""The gates of engines that make images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import tokenizers

from optc.artifact.tasks.image_generation import LATENT_DECODER, TEXT_ENCODER
from optc.artifact.writer import ArtifactWriter
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.compiling.diffusion.prompts import prompts_of
from optc.compiling.judging.judge import Judgement
from optc.compiling.parts.judging import Executables, Measuring, judge_parts, source_of
from optc.proof.gates.measure import GateResult
from optc.proof.gates.pictures.measure import (
    STEPS,
    Expected,
    Recorded,
    expected_of,
    measure_generator,
)
from optc.runtime.diffusion.generator import ImageGenerator
from optc.runtime.tensors.engine import open_folder
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.compiling.recipes.recipe import Recipe
    from optc.importer.tensors.diffusion import ImportedDiffusion


def judge_diffusion(
    imported: ImportedDiffusion,
    given: Sequence[str],
    recipe: Recipe,
    writer: ArtifactWriter,
    asked: CompileOptions,
    originals: Mapping[str, ir.Model],
    engines: Sequence[BuiltEngine],
) -> Judgement:
    """Measure the recipe's gates through every set of engines that runs here.

    Args:
        imported: With the source's own outputs.
        given: The user's prompts; none are those that ship.
        recipe: Its gates count.
        writer: Of the artifact.
        asked: Whether gates are wanted, and may be left unmeasured.
        originals: The graphs as imported, by role, for the baseline; they are built, and changed.
        engines: Built under ``writer``.
    """
    prompts = prompts_of(given, takes_prompts=TEXT_ENCODER in imported.parts)

    @cache
    def expected() -> Expected:  # seconds of the source, and the same for all engines
        return _expected(imported, prompts)

    def measure(found: Executables, baseline: Executables, name: str) -> Sequence[GateResult]:
        both = [_generator(imported, one) for one in (found, baseline)]
        return measure_generator(both[0], found[TARGET], expected(), both[1], recipe.gates, name)

    count = prompts if isinstance(prompts, int) else len(prompts)
    facts = {"samples": count, "steps": STEPS}
    return judge_parts(
        recipe,
        writer,
        asked,
        imported.parts,
        originals,
        engines,
        Measuring(open_folder, measure),
        facts,
    )


def _expected(imported: ImportedDiffusion, prompts: Sequence[str] | int) -> Expected:
    source = source_of(imported.parts)
    denoiser = Recorded(source[TARGET])
    reference = _generator(imported, {**source, TARGET: denoiser})
    return expected_of(reference, denoiser, prompts)


def _generator(imported: ImportedDiffusion, engines: Executables) -> ImageGenerator:
    known = imported.tokenizer
    return ImageGenerator(
        engines[TARGET],
        engines.get(TEXT_ENCODER),
        engines.get(LATENT_DECODER),
        imported.conventions,
        tokenizers.Tokenizer.from_str(known) if known else None,
        {},
    )
