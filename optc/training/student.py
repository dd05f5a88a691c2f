"""The models of a training: the teacher, and the student that a recipe's passes make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from optc.driver.compiling.lowering import CANONICALIZE
from optc.driver.recipes.recipe_options import resolve_recipe
from optc.errors import InputError
from optc.importer import ImportedModel
from optc.importer.model_folder import model_folder
from optc.ir.graph import width
from optc.options import CompileOptions
from optc.options.training_options import TrainingOptions
from optc.pipeline import registry
from optc.pipeline.base import Pass
from optc.pipeline.entries import read_pipeline
from optc.pipeline.pipeline import Pipeline
from optc.pipeline.record import PassRecord
from optc.progress import Progress, telling
from optc.recipe_trained import float_weights_place, rounded_weights_place


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
    from optc.importer import import_model

    progress("import", 0, 0)
    imported = import_model(folder, allow_remote_code=allow_remote_code)
    read_pipeline([CANONICALIZE], registry).run(imported.model)
    return imported


def pruned_student(folder: Path, asked: TrainingOptions, progress: Progress) -> Student:
    """The student that a recipe's pruning leaves; without a recipe, the model itself.

    Raises:
        InputError: Bad options, or the recipe prunes nothing.
    """
    imported = import_dense(folder, progress, allow_remote_code=asked.allow_remote_code)
    source = imported.model.clone()
    if asked.recipe is None:
        return Student(imported, source, imported.model, CANONICALIZE, ())
    passes, warnings = _passes(folder, asked)
    behind = _behind_canonicalize(passes)
    place = float_weights_place(behind)
    if not place:
        raise InputError(
            f"the recipe {asked.recipe} prunes nothing",
            where="--recipe",
            hint="leave it out to train the model as it is",
        )
    records = _run(Pipeline(behind), imported.model, place, progress)
    spec = _spec(passes[: float_weights_place(passes)])
    return Student(imported, source, imported.model, spec, (*warnings, *_told(records)))


def rounded_student(
    folder: Path, asked: TrainingOptions, progress: Progress
) -> tuple[Student, ir.Model]:
    """The student whose weights a recipe rounds to integers, and it behind quantize-weights.

    Raises:
        InputError: Bad options, no recipe, or one without quantize-weights.
    """
    if asked.recipe is None:
        raise InputError(
            "no recipe says how weights are rounded", where="--recipe", hint="such as int2-fused"
        )
    passes, warnings = _passes(folder, asked)
    quantize = next((one for one in passes if one.name == "quantize-weights"), None)
    if quantize is None:
        raise InputError(
            f"the recipe {asked.recipe} has no quantize-weights",
            where="--recipe",
            hint="take one that rounds weights to integers, such as int2-fused",
        )
    imported = import_dense(folder, progress, allow_remote_code=asked.allow_remote_code)
    source = imported.model.clone()
    pipeline = Pipeline(_behind_canonicalize(passes))
    place = rounded_weights_place(pipeline.passes, behind_errors=True)
    records = _run(pipeline, imported.model, place, progress)
    settled = next(p for p in pipeline.settled(records).passes if p.name == quantize.name)
    rounded = imported.model.clone()
    records += _run(Pipeline((settled,)), rounded, 1, progress)
    leading = passes[: rounded_weights_place(passes, behind_errors=True)]
    told = (*warnings, *_told(records))
    return Student(imported, source, imported.model, _spec((*leading, settled)), told), rounded


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


def _passes(folder: Path, asked: TrainingOptions) -> tuple[tuple[Pass, ...], list[str]]:
    options = CompileOptions(
        recipe=asked.recipe or "",
        set=asked.set,
        calibration=asked.calibration,
        calibration_cache=asked.calibration_cache,
        trained=asked.trained,
    )
    recipe, _, warnings = resolve_recipe(model_folder(folder), options)
    return recipe.pipeline.passes, warnings


def _behind_canonicalize(passes: Sequence[Pass]) -> tuple[Pass, ...]:
    """Without those that lead to the dense form, which have run."""
    leading = {one.name for one in registry.pass_groups()[CANONICALIZE]}
    return tuple(one for one in passes if one.name not in leading)


def _run(pipeline: Pipeline, model: ir.Model, first: int, progress: Progress) -> list[PassRecord]:
    progress("passes", 0, 0)
    with telling(progress):
        return pipeline.run(model, first=first)


def _spec(passes: Sequence[Pass]) -> str:
    return Pipeline(tuple(passes)).spec()


def _told(records: Sequence[PassRecord]) -> list[str]:
    return [f"pass {one.name}: {text}" for one in records for text in one.report.warnings]
