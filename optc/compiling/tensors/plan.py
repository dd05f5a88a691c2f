"""``optc plan`` of models that do not generate text: what a compile would do, before it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc import registry
from optc.artifact.tasks.image_generation import IMAGE_GENERATION, IMAGE_GENERATION_NAME
from optc.artifact.tasks.task import TARGET, Task
from optc.artifact.tasks.tensors import TENSORS_NAME
from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT, TEXT_TO_TEXT_NAME
from optc.artifact.tasks.transcription import TRANSCRIPTION, TRANSCRIPTION_NAME
from optc.compiling.ladder.measured.options import check_gates, resolve_measured
from optc.compiling.parts.options import check_taken, load_member, load_tensor_recipe
from optc.compiling.recipes.recipe import Recipe
from optc.compiling.resolving.engines import name_engines
from optc.errors import InputError, UnsupportedError
from optc.runtime.executable.tensors_interface import TensorSpec
from optc.system.options import AUTO, CompileOptions
from optc.system.progress import Progress, no_progress, telling
from optc.system.sources.tensor_source import TensorSource

if TYPE_CHECKING:
    from optc.importer.tensors.imported import ImportedTensors
    from optc.ir.pipeline.record import PassRecord


@dataclass(frozen=True)
class PlannedPart:
    """A graph of the model, which becomes an engine.

    Attributes:
        role: Of the engine.
        inputs, outputs: Named tensors.
        operators: Counts by name, before the recipe's passes.
        weight_bytes: As imported.
    """

    role: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    operators: Mapping[str, int]
    weight_bytes: int


@dataclass(frozen=True)
class PlannedRecipe:
    """A recipe for the model.

    Attributes:
        recipe: Its name.
        engines: ``BACKEND for TARGET``, each with the reason why it cannot be built here; empty if
            it can; those of an encoder and a decoder as ``BACKEND, KEY``, by keys of the recipe.
        rewrites: By pass, what it would rewrite and how often; without steps of a decoder, which a
            compile exports.
        gates: Bounds by gate; None is measured and not judged.
        left_out: Why it does not take the model; empty if it does.
    """

    recipe: str
    engines: Mapping[str, str]
    rewrites: Mapping[str, Mapping[str, int]]
    gates: Mapping[str, float | None]
    left_out: str = ""


@dataclass(frozen=True)
class TensorsPlan:
    """The plan of a compile of a model that does not generate text.

    Attributes:
        model: Its name.
        task: What it is for.
        reference: What its engines would be compared with.
        parts: Its graphs.
        recipes: The one that was named, or those that ``auto`` would try.
        warnings: What the user should know.
    """

    model: str
    task: str
    reference: str
    parts: tuple[PlannedPart, ...]
    recipes: tuple[PlannedRecipe, ...]
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``optc plan --json``, without ``warnings``."""
        values = asdict(self)
        del values["warnings"]
        for part, planned in zip(values["parts"], self.parts, strict=True):
            for side in ("inputs", "outputs"):
                specs: Sequence[TensorSpec] = getattr(planned, side)
                part[side] = [
                    {"name": one.name, "dtype": one.dtype, "dims": list(one.dims)} for one in specs
                ]
        return values

    def __repr__(self) -> str:
        names = ", ".join(one.recipe for one in self.recipes)
        return f"<optc.TensorsPlan of {self.model}, {names}>"


def plan_tensors(
    source: TensorSource,
    kind: str,
    asked: CompileOptions,
    progress: Progress = no_progress,
) -> TensorsPlan:
    """Import a model and say what a compile would do; passes are run without samples.

    Args:
        source: The model, or its folder.
        kind: Its kind, as `optc.compiling.compile.source_kind` tells it.
        asked: Of its options those count that do not concern text.
        progress: Told what goes on.

    Raises:
        InputError, UnsupportedError: As of `optc.compile`; where ``auto`` is asked for, recipes
            that do not take the model are in the plan.
    """
    check_taken(asked)
    progress("import", 0, 0)
    name, task, graphs, warnings = _imported(source, kind)
    check_gates(asked.gate, task)
    parts = tuple(_part(role, graph) for role, graph in graphs.items())
    with telling(progress):
        if asked.recipe == AUTO:
            members = resolve_measured(asked, kind, task).members
            recipes = [load_member(member) for member in members]
            found = tuple(_planned(one, asked, graphs, task, strict=False) for one in recipes)
        else:
            recipe = load_tensor_recipe(asked, kind)
            found = (_planned(recipe, asked, graphs, task, strict=True),)
    return TensorsPlan(name, task.name, task.reference, parts, found, tuple(warnings))


def _imported(
    source: TensorSource, kind: str
) -> tuple[str, Task, Mapping[str, ImportedTensors], Sequence[str]]:
    """Name, task, graphs by role, and warnings."""
    if kind == TENSORS_NAME:
        from optc.importer.tensors.open import import_tensors

        one = import_tensors(source)
        return one.name, one.task, {TARGET: one}, one.warnings
    folder = Path(source.model)
    if kind == TRANSCRIPTION_NAME:
        from optc.importer.tensors.speech import import_speech

        speech = import_speech(folder)
        return speech.name, TRANSCRIPTION, speech.models.by_role, ()
    if kind == TEXT_TO_TEXT_NAME:
        from optc.importer.tensors.text_to_text import import_text_to_text

        generator = import_text_to_text(folder)
        return generator.name, TEXT_TO_TEXT, generator.models.by_role, generator.warnings
    if kind == IMAGE_GENERATION_NAME:
        from optc.importer.tensors.diffusion import import_diffusion

        pipeline = import_diffusion(folder)
        return pipeline.name, IMAGE_GENERATION, pipeline.parts, pipeline.warnings
    raise ValueError(f"no model of named tensors is of the kind {kind!r}")


def _part(role: str, graph: ImportedTensors) -> PlannedPart:
    operators = Counter(
        f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        for node in graph.model.graph
    )
    weights = (value.const_value for value in graph.model.graph.initializers.values())
    return PlannedPart(
        role,
        graph.interface.inputs,
        graph.interface.outputs,
        dict(operators.most_common()),
        sum(one.nbytes for one in weights if one is not None),
    )


def _runs(
    recipe: Recipe, asked: CompileOptions, role: str, graph: ImportedTensors
) -> Sequence[PassRecord]:
    """Records of the passes that a graph would get. That of steps is another one, which a compile
    exports."""
    own = recipe.own_parts(asked.backend)
    if role == TARGET and "decoder" in own:
        return ()
    if role in own:
        try:
            return own[role].pipeline.run(graph.model.clone(), dry=True)
        except UnsupportedError:
            pass  # as a compile does
    return recipe.pipeline.run(graph.model.clone(), dry=True)


def _planned(
    recipe: Recipe,
    asked: CompileOptions,
    graphs: Mapping[str, ImportedTensors],
    task: Task,
    *,
    strict: bool,
) -> PlannedRecipe:
    engines: dict[str, str] = {}
    rewrites: dict[str, dict[str, int]] = {}
    why = ""
    try:
        for one in name_engines(asked.backend, asked.target, recipe.backend):
            engines[f"{one.backend.name} for {one.target.name}"] = one.backend.available()
        for key, part in recipe.own_parts(asked.backend).items():
            engines[f"{part.backend}, {key}"] = registry.backend(part.backend).available()
        for role, graph in graphs.items():
            for record in _runs(recipe, asked, role, graph):
                counts = rewrites.setdefault(record.name, {})
                for what, count in record.report.details.items():
                    counts[what] = counts.get(what, 0) + count
    except InputError as error:
        if strict:
            raise
        why = error.render()
    gates = {name: bound for name, bound in recipe.gates.items() if name in task.gates}
    return PlannedRecipe(recipe.name, engines, {} if why else rewrites, gates, why)
