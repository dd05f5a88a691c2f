"""A pipeline of diffusers to be compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optc.artifact.manifest import TokenizerEntry
from optc.artifact.tasks.image_generation import IMAGE_GENERATION, TEXT_ENCODER
from optc.artifact.writer import ArtifactWriter
from optc.compiling.diffusion.judge import DiffusionJudge
from optc.compiling.diffusion.prompts import prompts_of
from optc.compiling.parts.given import check_given, read_lines
from optc.compiling.parts.parts import (
    Parts,
    PartsSource,
    write_conventions,
    write_tokenizer,
)
from optc.importer.tensors.diffusion import ImportedDiffusion, import_diffusion
from optc.runtime.diffusion.conventions import CONVENTIONS_FILE


def diffusion_source(folder: Path, given: Mapping[str, Any]) -> PartsSource:
    """A pipeline of diffusers.

    Args:
        folder: Of the pipeline, with model_index.json.
        given: ``inputs``: files of prompts to judge it by (`optc.compiling.diffusion.prompts`).

    Raises:
        InputError: Bad usage, or bad prompts.
    """
    prompts = read_lines(check_given(given, "pipelines of diffusers"), "prompts")
    return PartsSource(
        kind=IMAGE_GENERATION.name,
        name=folder.resolve().name,
        load=lambda: _parts(import_diffusion(folder), prompts),
        hint="such as diffusion-fp32 or diffusion-fp16",
        task=IMAGE_GENERATION,
    )


def _parts(imported: ImportedDiffusion, prompts: Sequence[str]) -> Parts:
    def write(writer: ArtifactWriter) -> TokenizerEntry | None:
        write_conventions(writer, CONVENTIONS_FILE, imported.conventions)
        return write_tokenizer(writer, imported.tokenizer)

    judged = prompts_of(prompts, takes_prompts=TEXT_ENCODER in imported.parts)
    judge = DiffusionJudge(imported, judged)
    return Parts(
        task=IMAGE_GENERATION,
        name=imported.name,
        digest=imported.digest,
        graphs=imported.parts,
        judge=lambda recipe: judge,
        write=write,
        warnings=imported.warnings,
    )
