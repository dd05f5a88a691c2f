"""One compile of a pipeline of diffusers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import TOKENIZER_FILE, TokenizerEntry
from optc.artifact.tasks.image_generation import IMAGE_GENERATION
from optc.artifact.writer import ArtifactWriter
from optc.compiling.diffusion.judge import judge_diffusion
from optc.compiling.diffusion.prompts import read_prompts
from optc.compiling.parts.compile import Parts, compile_parts
from optc.errors import InputError
from optc.importer.tensors.diffusion import ImportedDiffusion, import_diffusion
from optc.runtime.diffusion.conventions import CONVENTIONS_FILE
from optc.system.options import CompileOptions
from optc.system.progress import Progress, no_progress


def compile_diffusion(
    folder: Path,
    given: Mapping[str, Any],
    asked: CompileOptions,
    progress: Progress = no_progress,
) -> Artifact:
    """Compile a pipeline of diffusers into an artifact and prove it against its source.

    Args:
        folder: Of the pipeline, with model_index.json.
        given: ``inputs``: files of prompts to judge it by (`optc.compiling.diffusion.prompts`).
        asked: Of its options those count that do not concern text.
        progress: Told what goes on.

    Raises:
        InputError: Bad usage, folder, recipe, prompts or output; nothing is left behind.
        UnsupportedError: A part cannot be captured or lowered, or is not known.
        UnavailableError: A package is missing.
        GateError: A gate failed; its ``details`` hold what was measured.
    """
    if other := next((name for name, value in given.items() if value and name != "inputs"), ""):
        raise InputError("is not for pipelines of diffusers", where=other, hint="leave it out")
    prompts = read_prompts(given.get("inputs", ()))
    return compile_parts(
        asked,
        IMAGE_GENERATION,
        folder.resolve().name,
        "such as diffusion-fp32 or diffusion-fp16",
        lambda: _parts(import_diffusion(folder), prompts),
        progress,
    )


def _parts(imported: ImportedDiffusion, prompts: Sequence[str]) -> Parts:
    def write(writer: ArtifactWriter) -> TokenizerEntry | None:
        conventions = json.dumps(to_builtins(imported.conventions), indent=1, sort_keys=True)
        (writer.folder / CONVENTIONS_FILE).write_text(conventions + "\n", "utf-8")
        if not imported.tokenizer:
            return None
        file = writer.subfolder("tokenizer") / "tokenizer.json"
        file.write_text(imported.tokenizer, "utf-8")
        return TokenizerEntry((TOKENIZER_FILE,), None, (), add_bos=False)

    return Parts(
        task=IMAGE_GENERATION,
        name=imported.name,
        digest=imported.digest,
        graphs=imported.parts,
        judge=partial(judge_diffusion, imported, prompts),
        write=write,
        warnings=imported.warnings,
    )
