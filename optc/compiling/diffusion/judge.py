"""The gates of engines that make images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import tokenizers

from optc.artifact.tasks.image_generation import LATENT_DECODER, TEXT_ENCODER
from optc.artifact.writer import ArtifactWriter
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.compiling.diffusion.prompts import prompts_of
from optc.compiling.judging.judge import Judgement, not_judged
from optc.compiling.parts.judging import SourceExecutable, baseline_of, unmeasured
from optc.proof.gates.measure import GateResult, is_open
from optc.proof.gates.pictures.measure import (
    STEPS,
    Expected,
    Recorded,
    expected_of,
    measure_generator,
)
from optc.runtime.diffusion.generator import ImageGenerator
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.tensors.engine import open_folder
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import usable_threads
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.compiling.recipes.recipe import Recipe
    from optc.importer.tensors.diffusion import ImportedDiffusion


def judge_diffusion(
    recipe: Recipe,
    given: Sequence[str],
    writer: ArtifactWriter,
    asked: CompileOptions,
    imported: ImportedDiffusion,
    originals: Mapping[str, ir.Model],
    engines: Sequence[BuiltEngine],
) -> Judgement:
    """Measure the recipe's gates through every set of engines that runs here.

    Args:
        recipe: Its gates count.
        given: The user's prompts; none are those that ship.
        writer: Of the artifact.
        asked: Whether gates are wanted, and may be left unmeasured.
        imported: With the source's own outputs.
        originals: The graphs as imported, by role, for the baseline; they are built, and changed.
        engines: Built under ``writer``.
    """
    targets = [built for built in engines if built.entry.role == TARGET]
    prompts = prompts_of(given, takes_prompts=TEXT_ENCODER in imported.parts)
    if asked.no_gates:
        return not_judged(recipe.gates, targets)
    expected = _expected(imported, prompts)
    verdicts: list[GateResult] = []
    threads = usable_threads()
    with writer.scratch() as folder:
        opened = {
            role: baseline_of(originals[role], part, folder / role, threads)
            for role, part in imported.parts.items()
        }
        with _generator(imported, opened) as baseline:
            for built in targets:
                if reason := this_machine().misfit(built.request.target):
                    verdicts += unmeasured(recipe.gates, reason, built.entry.name)
                    continue
                own = {
                    one.entry.role: open_folder(
                        writer.folder / one.entry.folder, one.entry, threads
                    )
                    for one in engines
                    if one.request is built.request
                }
                with _generator(imported, own) as found:
                    verdicts += measure_generator(
                        found, own[TARGET], expected, baseline, recipe.gates, built.entry.name
                    )
    strict = not (asked.allow_unmeasured or asked.keep_failed)
    failed = [one for one in verdicts if one.passed is False or (strict and is_open(one))]
    shown = tuple(one for one in verdicts if one.value is not None or one.bound is not None)
    facts = {"samples": len(expected.images), "steps": STEPS, "reference": "source"}
    return Judgement(shown, measured=True, failed=tuple(failed), facts=facts)


def _expected(imported: ImportedDiffusion, prompts: Sequence[str] | int) -> Expected:
    source = {role: SourceExecutable(part) for role, part in imported.parts.items()}
    denoiser = Recorded(source[TARGET])
    reference = _generator(imported, {**source, TARGET: denoiser})
    return expected_of(reference, denoiser, prompts)


def _generator(
    imported: ImportedDiffusion, engines: Mapping[str, TensorsExecutable]
) -> ImageGenerator:
    known = imported.tokenizer
    return ImageGenerator(
        engines[TARGET],
        engines.get(TEXT_ENCODER),
        engines.get(LATENT_DECODER),
        imported.conventions,
        tokenizers.Tokenizer.from_str(known) if known else None,
        {},
    )
