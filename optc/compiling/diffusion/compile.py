"""One compile of a pipeline of diffusers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import TOKENIZER_FILE, TokenizerEntry
from optc.artifact.store.local import store_root
from optc.artifact.tasks.image_generation import IMAGE_GENERATION, IMAGE_GENERATION_NAME
from optc.artifact.writer import ArtifactWriter
from optc.compiling.diffusion.judge import judge_diffusion
from optc.compiling.diffusion.prompts import read_prompts
from optc.compiling.judging.judge import Judgement
from optc.compiling.parts.compile import Parts, PartsCompile, tensor_engines
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.resolving.options import limit_of
from optc.compiling.tensors.compile import load_tensor_recipe
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
    started = time.perf_counter()
    if other := next((name for name, value in given.items() if value and name != "inputs"), ""):
        raise InputError("is not for pipelines of diffusers", where=other, hint="leave it out")
    recipe = load_tensor_recipe(
        asked, (IMAGE_GENERATION_NAME,), "such as diffusion-fp32 or diffusion-fp16"
    )
    engines = tensor_engines(asked, recipe)
    name = folder.resolve().name
    output = asked.output or store_root() / f"{name}-{recipe.name}"
    prompts = read_prompts(given.get("inputs", ()))
    with (
        PeakMemory(limit_of(asked.max_ram)) as memory,
        ArtifactWriter(output, force=asked.force) as writer,
    ):
        compiling = PartsCompile(asked, recipe, engines, writer, memory, progress, started)
        judged = partial(judge_diffusion, recipe, prompts, writer, asked)
        return compiling.run(lambda: _parts(import_diffusion(folder), judged))


def _parts(imported: ImportedDiffusion, judge: Callable[..., Judgement]) -> Parts:
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
        judge=partial(judge, imported),
        write=write,
        warnings=imported.warnings,
    )
