"""One compile of a model of named tensors, by one recipe or by the best that holds."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path

from optc.artifact.artifact import Artifact
from optc.artifact.store.local import store_root
from optc.artifact.tasks.tensors import TENSORS_NAME
from optc.artifact.writer import ArtifactWriter
from optc.compiling.ladder.measured.climb import MeasuredClimber
from optc.compiling.ladder.measured.options import resolve_measured
from optc.compiling.ladder.members import Member
from optc.compiling.recipes.recipe import Recipe, load_recipe
from optc.compiling.resolving.engines import parse_engines
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.resolving.options import limit_of
from optc.compiling.tensors.attempt import TensorsAttempt
from optc.compiling.tensors.judge import KeptOutputs
from optc.compiling.tensors.samples import Tensors
from optc.compiling.tensors.stages import Stages
from optc.errors import InputError, UnsupportedError
from optc.importer.tensors.open import import_tensors
from optc.system.options import AUTO, CompileOptions
from optc.system.progress import Progress, no_progress
from optc.system.sources.tensor_source import TensorSource

#: Options of a compile that models of named tensors have, too.
_TAKEN = frozenset(
    {"recipe", "output", "backend", "target", "set", "gate", "calibration"}
    | {"no_gates", "force", "keep_failed", "max_ram", "dump_dir", "allow_unmeasured"}
)
#: Those that only `AUTO` has.
_OF_AUTO = frozenset({"objective", "ladder"})


def compile_tensors(
    source: TensorSource,
    samples: Sequence[Path | Tensors],
    asked: CompileOptions,
    progress: Progress = no_progress,
) -> Artifact:
    """Compile a model of named tensors into an artifact and prove it against its source.

    Args:
        source: The model.
        samples: Inputs to judge it by: files of NumPy (``.npz``), or arrays by name. None are the
            source's own example, or random ones, which a warning says.
        asked: Of its options those count that do not concern text.
        progress: Told what goes on.

    Raises:
        InputError: Bad usage, source, recipe, sample or output; nothing is left behind.
        UnsupportedError: Something in the model cannot be captured or lowered.
        UnavailableError: A package is missing.
        GateError: A gate failed; its ``details`` hold what was measured.
    """
    started = time.perf_counter()
    check_taken(asked)
    if asked.recipe == AUTO:
        return _compile_auto(source, samples, asked, progress, started)
    recipe = load_tensor_recipe(asked)
    engines = parse_engines(asked.backend, asked.target, recipe.backend)
    if recipe.otherwise and any(one.backend.name != recipe.backend for one in engines):
        recipe = load_recipe(recipe.otherwise, sets=asked.set, gates=asked.gate)
    output = asked.output or store_root() / f"{source.name}-{recipe.name}"
    with (
        PeakMemory(limit_of(asked.max_ram)) as memory,
        ArtifactWriter(output, force=asked.force) as writer,
    ):
        stages = Stages(asked, recipe, engines, writer, memory, progress, started)
        with stages.timed("import"):
            imported = import_tensors(source)
        attempt = TensorsAttempt(stages, imported, samples)
        attempt.build()
        attempt.judge()
        return attempt.finish()


def _compile_auto(
    source: TensorSource,
    samples: Sequence[Path | Tensors],
    asked: CompileOptions,
    progress: Progress,
    started: float,
) -> Artifact:
    """The artifact of the best recipe that holds the gates. Raises as `compile_tensors`."""
    output = asked.output or store_root() / f"{source.name}-{AUTO}"
    with (
        PeakMemory(limit_of(asked.max_ram)) as memory,
        ArtifactWriter(output, force=asked.force) as writer,
        writer.scratch() as scratch,
    ):
        progress("import", 0, 0)
        imported = import_tensors(source)
        if imported.reference is not None:  # which takes as long as all engines
            imported = replace(imported, reference=KeptOutputs(imported.reference))
        ladder = resolve_measured(asked, TENSORS_NAME, imported.task)

        def begin(member: Member, own: ArtifactWriter, told: Progress) -> TensorsAttempt:
            recipe = load_member(member)
            engines = parse_engines(asked.backend, asked.target, recipe.backend)
            other = next((e.backend.name for e in engines if e.backend.name != recipe.backend), "")
            if recipe.otherwise and other:
                raise UnsupportedError(f"is for the backend {recipe.backend}, not {other}")
            recipe = replace(recipe, otherwise="")  # which is a recipe of the ladder, too
            stages = Stages(member.asked, recipe, engines, own, memory, told, started)
            fresh = replace(imported, model=imported.model.clone())
            return TensorsAttempt(stages, fresh, samples)

        return MeasuredClimber(ladder, begin, writer, scratch, progress).run()


def check_taken(asked: CompileOptions) -> None:
    """Check that no option concerns decoders of text.

    Raises:
        InputError: One does.
    """
    defaults = CompileOptions()
    taken = _TAKEN | _OF_AUTO if asked.recipe == AUTO else _TAKEN
    for one in fields(CompileOptions):
        if one.name not in taken and getattr(asked, one.name) != getattr(defaults, one.name):
            auto = one.name in _OF_AUTO
            raise InputError(
                f"is for --recipe {AUTO}"
                if auto
                else "concerns decoders of text, and the model is none",
                where=f"--{one.name.replace('_', '-')}",
                hint="leave it out",
            )


def load_member(member: Member) -> Recipe:
    """A recipe of a ladder, with what is asked of it."""
    return load_recipe(member.source, sets=member.asked.set, gates=member.asked.gate)


def load_tensor_recipe(
    asked: CompileOptions,
    tasks: Collection[str] = (TENSORS_NAME,),
    hint: str = "optc recipes lists those for the model's task, such as tensors-fp32",
) -> Recipe:
    """The recipe that is asked for, of a model that is no decoder of text.

    Raises:
        InputError: The recipe is for another task than ``tasks``; then ``hint`` says what to do.
    """
    recipe = load_recipe(asked.recipe, sets=asked.set, gates=asked.gate)
    if recipe.task not in tasks:
        raise InputError(
            f"the recipe {recipe.name!r} is for the task {recipe.task!r}",
            where="--recipe",
            hint=hint,
        )
    return recipe
