"""The models of a training: the teacher, and the student that a recipe's passes make of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from optc.compiling.lowering.lowering import dense_pipeline
from optc.compiling.resolving.recipe_options import resolve_recipe, with_local_files
from optc.compiling.resolving.trained import float_weights_place, rounded_weights_place
from optc.errors import InputError
from optc.importer.imported import ImportedModel
from optc.importer.model_folder import model_folder
from optc.ir.graph import width
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.pipeline.pipeline import Pipeline
from optc.ir.pipeline.record import PassRecord
from optc.system.options import CompileOptions
from optc.system.options.training_options import TrainingOptions
from optc.system.progress import Progress, telling

#: Refuses what cannot be trained of a dense form by a pipeline whose first passes, so many, make
#: the student.
Check = Callable[[ir.Model, Pipeline, int], None]


@dataclass(frozen=True)
class Student:
    """A student, and the model that it was made of.

    Attributes:
        imported: The model.
        source: Its dense form.
        model: The student's dense form, with float weights.
        pipeline: The passes as text.
        warnings: What the user should know.
    """

    imported: ImportedModel
    source: ir.Model
    model: ir.Model
    pipeline: str
    warnings: tuple[str, ...]


def import_dense(folder: Path, progress: Progress, *, allow_remote_code: bool) -> ImportedModel:
    """The model in ``folder``, in dense form.

    Raises:
        InputError: No model, or a broken one.
        UnsupportedError: Something in it is not recognized.
    """
    imported = _import(folder, progress, allow_remote_code)
    dense_pipeline().run(imported.model)
    return imported


def pruned_student(
    folder: Path, asked: TrainingOptions, progress: Progress, check: Check
) -> Student:
    """The student that a recipe's pruning leaves; without a recipe, the model itself. ``check`` is
    called before the passes take long.

    Raises:
        InputError: Bad options, or the recipe prunes nothing.
    """
    if asked.recipe is None:
        imported = import_dense(folder, progress, allow_remote_code=asked.allow_remote_code)
        dense = dense_pipeline()
        check(imported.model, dense, len(dense.passes))
        return Student(imported, imported.model.clone(), imported.model, dense.spec(), ())
    pipeline, warnings = _pipeline(folder, asked)
    place = float_weights_place(pipeline.passes)
    if place <= _leading(pipeline):
        raise InputError(
            f"the recipe {asked.recipe} prunes nothing",
            where="--recipe",
            hint="leave it out to train the model as it is",
        )
    imported = _import(folder, progress, asked.allow_remote_code)
    source, records = _lower(pipeline, imported.model, place, progress, check)
    spec = Pipeline(pipeline.passes[:place]).spec()
    return Student(imported, source, imported.model, spec, (*warnings, *_told(records)))


def rounded_student(
    folder: Path, asked: TrainingOptions, progress: Progress, check: Check
) -> tuple[Student, ir.Model]:
    """The student whose weights a recipe rounds to integers, and it behind the pass that does;
    ``check`` is called before the passes take long.

    Raises:
        InputError: Bad options, no recipe, or one that rounds none.
    """
    if asked.recipe is None:
        raise InputError(
            "no recipe says how weights are rounded", where="--recipe", hint="such as int2-fused"
        )
    pipeline, warnings = _pipeline(folder, asked)
    if not pipeline.has(Effect.QUANTIZES_WEIGHTS):
        raise InputError(
            f"the recipe {asked.recipe} rounds no weights to integers",
            where="--recipe",
            hint="take one that does, such as int2-fused",
        )
    kept = tuple(one for one in pipeline.passes if not one.has(Effect.MAKES_EXPERTS))
    pipeline = replace(pipeline, passes=kept)  # as a compile with trained weights does it
    place = rounded_weights_place(pipeline.passes, behind_errors=True)
    imported = _import(folder, progress, asked.allow_remote_code)
    source, records = _lower(pipeline, imported.model, place, progress, check)
    settled = pipeline.settled(records).passes
    quantize = next(one for one in settled if one.has(Effect.QUANTIZES_WEIGHTS))
    rounded = imported.model.clone()
    with telling(progress):
        records += Pipeline((quantize,)).run(rounded)
    spec = Pipeline((*settled[:place], quantize)).spec()
    told = (*warnings, *_told(records))
    return Student(imported, source, imported.model, spec, told), rounded


def unread_student(dense: ir.Model, pipeline: Pipeline, place: int) -> ir.Model:
    """The model that the first ``place`` passes leave of a dense form, as far as its graph and the
    sizes of its weights go; ``dense`` is not changed."""
    leading, student = _leading(pipeline), dense.clone()
    rest = replace(pipeline, passes=pipeline.passes[leading:])
    rest.run(student, dry=True, first=max(0, place - leading))
    return student


def vocabulary_of(model: ir.Model) -> int:
    """V, the width of the logits."""
    return width(model.graph.outputs[0]) or 0


def check_vocabulary(student: ir.Model, teacher: ir.Model, where: str) -> int:
    """The vocabulary of both.

    Raises:
        InputError: They differ.
    """
    ours, theirs = vocabulary_of(student), vocabulary_of(teacher)
    if ours != theirs:
        raise InputError(
            f"the teacher knows {theirs} tokens, the student {ours}",
            where=where,
            hint="both need one vocabulary",
        )
    return ours


def _import(folder: Path, progress: Progress, allow_remote_code: bool) -> ImportedModel:
    from optc.importer.import_model import import_model

    progress("import", 0, 0)
    return import_model(folder, allow_remote_code=allow_remote_code)


def _pipeline(folder: Path, asked: TrainingOptions) -> tuple[Pipeline, list[str]]:
    """The recipe's, and warnings."""
    options = CompileOptions(
        recipe=asked.recipe or "",
        set=asked.set,
        calibration=asked.calibration,
        calibration_cache=asked.calibration_cache,
        trained=asked.trained,
    )
    recipe, _, warnings = resolve_recipe(model_folder(folder), with_local_files(options))
    return recipe.pipeline, warnings


def _leading(pipeline: Pipeline) -> int:
    """The number of first passes that lead to the dense form."""
    return pipeline.behind(Phase.CANONICAL)


def _lower(
    pipeline: Pipeline, model: ir.Model, first: int, progress: Progress, check: Check
) -> tuple[ir.Model, list[PassRecord]]:
    """Run the first passes, which know the others; gives the dense form as it was on the way."""
    leading, kept = _leading(pipeline), [model.clone()]

    def keep(record: PassRecord, current: ir.Model) -> None:
        if record.index == leading - 1:
            kept.append(current.clone())
            check(current, pipeline, first)

    progress("passes", 0, 0)
    with telling(progress):
        records = pipeline.run(model, [keep], first=first)
    return kept[-1], records


def _told(records: Sequence[PassRecord]) -> list[str]:
    return [f"pass {one.name}: {text}" for one in records for text in one.report.warnings]
