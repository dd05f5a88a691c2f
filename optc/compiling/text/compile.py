"""One compile of a generator of text: by one recipe, or by the best that holds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Unpack

from optc.artifact.artifact import Artifact
from optc.artifact.writer import ArtifactWriter
from optc.compiling.resolving.limits import check_start
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.resolving.options import ResolvedOptions, limit_of, resolve_options
from optc.compiling.stages.row import Attempt, Done
from optc.proof.reference.execution.device import check_device, running_on
from optc.system.options import AUTO, CompileOptions
from optc.system.options.keywords import CompileChanges
from optc.system.options.option import with_changes
from optc.system.progress import Progress, no_progress, telling


def compile(
    model: str | Path,
    recipe: str | Path | None = None,
    output: str | Path | None = None,
    *,
    options: CompileOptions | None = None,
    progress: Progress = no_progress,
    **changes: Unpack[CompileChanges],
) -> Artifact:
    """Compile a Hugging Face folder into an artifact and prove it against the source.

    Args:
        model: Folder with config.json, safetensors and, usually, a tokenizer; or ``org/name`` or
            ``org/name@revision`` of the Hugging Face Hub.
        recipe, output: As in `CompileOptions`; here they need no name.
        options: What is asked for; None are the defaults.
        progress: Told what goes on.
        **changes: Fields of `CompileOptions` that differ from ``options``.

    Raises:
        InputError: Bad usage, model, recipe or output; nothing is left behind.
        UnsupportedError: Something in the model is not recognized or cannot be lowered.
        UnavailableError: A compiler or package is missing, or a device.
        GateError: A gate failed; its ``details`` hold what was measured.
        TypeError: There is no option of a name in ``changes``.
    """
    named = {"recipe": recipe, "output": output}
    stated = {name: value for name, value in named.items() if value is not None}
    asked = with_changes(options or CompileOptions(), {**changes, **stated})
    started = time.perf_counter()
    check_start(model, limit_of(asked.max_ram))
    check_device(asked.device, "calibrate and judge")
    with running_on(asked.device):
        if asked.recipe == AUTO:
            return _compile_auto(model, asked, progress, started)
        return _compile_one(model, asked, progress, started)


def _compile_one(
    model: str | Path, asked: CompileOptions, progress: Progress, started: float
) -> Artifact:
    """The artifact of the recipe that is named; ``started`` is when, by `time.perf_counter`. Raises
    as `compile`."""
    with telling(progress):
        resolved = resolve_options(model, asked, progress)
    with (
        PeakMemory(resolved.max_ram_bytes) as memory,
        ArtifactWriter(resolved.output, force=asked.force) as writer,
        writer.scratch() as scratch,
    ):
        from optc.compiling.text.stages import ROW

        done = Done(resolved.progress, started, scratch=scratch)
        return Attempt(_leave(done, resolved, writer, memory), ROW).run()


def _compile_auto(
    model: str | Path, asked: CompileOptions, progress: Progress, started: float
) -> Artifact:
    """The artifact of the best recipe that holds the gates. Raises as `compile`."""
    from optc.compiling.ladder.climb import climb
    from optc.compiling.ladder.options import resolve_ladder

    with telling(progress):
        ladder = resolve_ladder(model, asked, progress)
    with (
        PeakMemory(ladder.max_ram_bytes) as memory,
        ArtifactWriter(ladder.output, force=asked.force) as writer,
        writer.scratch() as scratch,
    ):
        from optc.compiling.stages.shared import SharedWork
        from optc.compiling.text.stages import LOAD, ROW
        from optc.importer.imported import ImportedModel

        loaded = _leave(Done(progress, started), ladder.compiles[0], writer, memory)
        loaded.run(LOAD)
        shared = SharedWork(loaded[ImportedModel])

        def begin(options: ResolvedOptions, folder: Path) -> Attempt:
            done = Done(options.progress, scratch=folder).leave(shared)
            own = writer.in_folder(folder / "artifact")
            return Attempt(_leave(done, options, own, memory), ROW)

        return climb(ladder, shared, begin, writer, scratch)


def _leave(
    done: Done, options: ResolvedOptions, writer: ArtifactWriter, memory: PeakMemory
) -> Done:
    """The beginning of a compile."""
    return done.leave(options, options.asked, options.recipe, writer, memory)
