"""One compile of a model of named tensors: by one recipe, or by the best that holds."""

from __future__ import annotations

import time

from optc.artifact.artifact import Artifact
from optc.artifact.store.local import store_root
from optc.artifact.writer import ArtifactWriter
from optc.compiling.ladder.measured.climb import MeasuredClimber
from optc.compiling.ladder.measured.options import check_gates, resolve_measured
from optc.compiling.ladder.members import Member
from optc.compiling.parts.options import PartsOptions, check_taken, load_tensor_recipe
from optc.compiling.parts.parts import PartsSource
from optc.compiling.parts.stages import ROW
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.resolving.options import limit_of
from optc.compiling.stages.row import Attempt, Done
from optc.system.options import AUTO, CompileOptions
from optc.system.progress import Progress


def compile_parts(source: PartsSource, asked: CompileOptions, progress: Progress) -> Artifact:
    """Compile a model of named tensors into an artifact and prove it against its source.

    Args:
        source: The model.
        asked: Of its options those count that do not concern text.
        progress: Told what goes on.

    Raises:
        InputError: Bad usage, recipe or output, or what ``source`` raises; nothing is left behind.
        UnsupportedError: Something in the model cannot be captured or lowered.
        UnavailableError: A package is missing.
        GateError: A gate failed; its ``details`` hold what was measured.
    """
    started = time.perf_counter()
    check_taken(asked)
    options = ladder = None
    if source.task is not None:
        check_gates(asked.gate, source.task)
    if asked.recipe != AUTO:
        options = PartsOptions.of(asked, load_tensor_recipe(asked, source.kind, source.hint))
    elif source.task is not None:
        ladder = resolve_measured(asked, source.kind, source.task)
    name = AUTO if options is None else options.recipe.name
    output = asked.output or store_root() / f"{source.name}-{name}"
    with (
        PeakMemory(limit_of(asked.max_ram)) as memory,
        ArtifactWriter(output, force=asked.force) as writer,
    ):
        imported = Done(progress, started)
        with imported.timed("import"):
            parts = source.load()
        check_gates(asked.gate, parts.task)

        def attempt(chosen: PartsOptions, own: ArtifactWriter, told: Progress) -> Attempt:
            done = Done(told, started, dict(imported.seconds))
            done.leave(chosen, chosen.asked, chosen.recipe, parts, own, memory)
            return Attempt(done, ROW)

        if options is not None:
            return attempt(options, writer, progress).run()

        def begin(member: Member, own: ArtifactWriter, told: Progress) -> Attempt:
            return attempt(PartsOptions.of_member(member), own, told)

        ladder = ladder or resolve_measured(asked, source.kind, parts.task)
        with writer.scratch() as scratch:
            return MeasuredClimber(ladder, begin, writer, scratch, progress).run()
