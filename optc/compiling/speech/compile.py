"""One compile of a model of speech."""

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
from optc.artifact.tasks.transcription import TRANSCRIPTION, TRANSCRIPTION_NAME
from optc.artifact.writer import ArtifactWriter
from optc.compiling.judging.judge import Judgement
from optc.compiling.parts.compile import Parts, PartsCompile, tensor_engines
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.resolving.options import limit_of
from optc.compiling.speech.judge import judge_speech
from optc.compiling.speech.samples import give_speech_samples
from optc.compiling.speech.sounds import Sounds
from optc.compiling.tensors.compile import load_tensor_recipe
from optc.errors import InputError
from optc.importer.tensors.speech import ImportedSpeech, import_speech
from optc.ir.pipeline.phase import Effect
from optc.runtime.audio.conventions import CONVENTIONS_FILE
from optc.system.options import CompileOptions
from optc.system.progress import Progress, no_progress


def compile_speech(
    folder: Path,
    given: Mapping[str, Any],
    asked: CompileOptions,
    progress: Progress = no_progress,
) -> Artifact:
    """Compile a model of speech into an artifact and prove it against its source.

    Args:
        folder: Of the model, for transformers.
        given: ``inputs``: sounds to judge it by (`optc.compiling.speech.sounds.read_sounds`); none
            are those that ship.
        asked: Of its options those count that do not concern text.
        progress: Told what goes on.

    Raises:
        InputError: Bad usage, folder, recipe, sound or output; nothing is left behind.
        UnsupportedError: Something in the model cannot be captured or lowered.
        UnavailableError: A package is missing.
        GateError: A gate failed; its ``details`` hold what was measured.
    """
    started = time.perf_counter()
    if other := next((name for name, value in given.items() if value and name != "inputs"), ""):
        raise InputError("is not for models of speech", where=other, hint="leave it out")
    recipe = load_tensor_recipe(asked, (TRANSCRIPTION_NAME,), "such as speech-fp32 or speech-int8")
    engines = tensor_engines(asked, recipe)
    name = folder.resolve().name
    output = asked.output or store_root() / f"{name}-{recipe.name}"
    learns = recipe.pipeline.has(Effect.READS_SAMPLES)
    sounds = Sounds.of(given.get("inputs", ()), asked.calibration, learns=learns)
    with (
        PeakMemory(limit_of(asked.max_ram)) as memory,
        ArtifactWriter(output, force=asked.force) as writer,
    ):
        compiling = PartsCompile(asked, recipe, engines, writer, memory, progress, started)
        judged = partial(judge_speech, recipe, sounds.judged, writer, asked)
        return compiling.run(lambda: _parts(import_speech(folder), sounds, judged))


def _parts(imported: ImportedSpeech, sounds: Sounds, judge: Callable[..., Judgement]) -> Parts:
    """Both halves; the tokenizer and the conventions are files of the artifact."""

    def write(writer: ArtifactWriter) -> TokenizerEntry:
        file = writer.subfolder("tokenizer") / "tokenizer.json"
        file.write_text(imported.tokenizer, "utf-8")
        conventions = json.dumps(to_builtins(imported.conventions), indent=1, sort_keys=True)
        (writer.folder / CONVENTIONS_FILE).write_text(conventions + "\n", "utf-8")
        end = (imported.conventions.end,)
        return TokenizerEntry((TOKENIZER_FILE,), None, end, add_bos=False)

    learned = sounds.learned
    return Parts(
        task=TRANSCRIPTION,
        name=imported.name,
        digest=imported.digest,
        graphs=imported.halves.by_role,
        judge=partial(judge, imported),
        write=write,
        calibrate=partial(give_speech_samples, imported, learned) if learned else None,
    )
