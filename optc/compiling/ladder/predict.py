"""Predictions for the recipes of a ladder, by the imported model and nothing measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optc.compiling.ladder.options import LadderOptions
from optc.compiling.ladder.rungs import Prediction, Rung, ordered
from optc.compiling.lowering.lowering import Lowered, lower, lower_again
from optc.compiling.predictions.artifact_size import artifact_bytes
from optc.compiling.predictions.compile_time import compile_seconds
from optc.compiling.predictions.engine_plan import EnginePlan, engine_plan
from optc.compiling.resolving.limits import weight_bytes
from optc.compiling.resolving.options import ResolvedOptions, build_limits
from optc.errors import InputError
from optc.ir.forms.find import form_type
from optc.ir.forms.ragged import RaggedStep
from optc.proof.roofline.assumed import assumed_ceilings
from optc.proof.roofline.ceilings import Ceiling
from optc.proof.roofline.estimate import CONTEXT, speed_bound
from optc.runtime.kv.kv_plan import sequence_bytes

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.backend import BuildOptions
    from optc.importer.imported import ImportedModel


@dataclass(frozen=True)
class Predictions:
    """The rungs of a ladder for a model.

    Attributes:
        rungs: The best one by the objective first.
        left_out: Why a recipe is none of them, by recipe.
        dense: The model in dense form, of which all engines are made.
    """

    rungs: tuple[Rung, ...]
    left_out: Mapping[str, str]
    dense: ir.Model


def predict_rungs(
    imported: ImportedModel,
    options: LadderOptions,
    ceilings: Mapping[str, Ceiling] | None = None,
    dense: ir.Model | None = None,
) -> Predictions:
    """Order the recipes of a ladder by what is predicted of their first engines.

    Args:
        imported: The model, which stays as it is, and is not needed with ``dense``.
        options: Of the ladder.
        ceilings: Of this machine; None are assumed ones (`optc.proof.roofline.assumed`), so that
            the order is the same whatever else runs.
        dense: The model in dense form, where it is known, which stays as it is.

    Raises:
        InputError, UnsupportedError: The model has no dense form, or no recipe suits it; the latter
            is the first recipe's error.
    """
    found: list[Rung] = []
    refusals: dict[str, InputError] = {}
    for compile in options.compiles:
        name = compile.recipe.name
        options.progress("ladder", len(found) + len(refusals), len(options.compiles))
        try:
            lowered = _lowered(imported, compile, dense)
            dense = lowered.reference
            found.append(_rung(imported, options, compile, lowered, ceilings))
        except InputError as error:
            refusals[name] = error
    if not found or dense is None:
        raise next(iter(refusals.values()))
    left_out = {name: error.render() for name, error in refusals.items()}
    left_out |= options.left_out
    return Predictions(ordered(found, options.objective), left_out, dense)


def _lowered(imported: ImportedModel, compile: ResolvedOptions, dense: ir.Model | None) -> Lowered:
    """The model behind the recipe's passes; the dense form is made once."""
    if dense is None:
        return lower(imported.model.clone(), compile, dry=True)
    return lower_again(dense.clone(), compile, dry=True)


def _rung(
    imported: ImportedModel,
    options: LadderOptions,
    compile: ResolvedOptions,
    lowered: Lowered,
    ceilings: Mapping[str, Ceiling] | None,
) -> Rung:
    limits = build_limits(compile, imported.max_context)
    request = compile.engines[0]
    plan = engine_plan(request, lowered.model, limits, None)
    _check_taken(plan)
    bound = None
    if plan.estimate is not None:
        known = ceilings or assumed_ceilings(request.target)
        bound = speed_bound(plan.estimate, min(CONTEXT, limits.max_context), known)
    files = imported.tokenizer_files
    weights = plan.estimate.weight_bytes if plan.estimate else weight_bytes(lowered.model)
    prediction = Prediction(
        decode_tokens_per_s=None if bound is None else bound.decode_tokens_per_s,
        prefill_tokens_per_s=None if bound is None else bound.prefill_tokens_per_s,
        artifact_bytes=None if plan.estimate is None else artifact_bytes(plan.estimate, files),
        memory_bytes=weights + _kv_bytes(lowered.model, limits),
        weight_bytes=weights,
        compile_s=_compile_seconds(compile, lowered, plan),
    )
    recipe = compile.recipe
    return Rung(recipe.name, recipe.description, prediction, options.promised[recipe.name])


def _check_taken(plan: EnginePlan) -> None:
    """Refuse a recipe of which the engine's backend cannot take a node.

    Raises:
        InputError: There is such a node.
    """
    for node in plan.nodes:
        if node.how == "unsupported":
            raise InputError(f"{node.operator}: {node.reason}", where=plan.name)


def _kv_bytes(model: ir.Model, limits: BuildOptions) -> int:
    """Keys, values and states of one sequence of the whole context; 0 where they are not paged."""
    if form_type(model) is not RaggedStep:
        return 0
    kv = RaggedStep.of(model).kv
    return sequence_bytes(kv.groups, kv.layers, limits.max_context)


def _compile_seconds(compile: ResolvedOptions, lowered: Lowered, plan: EnginePlan) -> float:
    if plan.estimate is None or not plan.estimate.compile_s:
        return 0.0
    passes = compile.recipe.pipeline.passes
    return sum(compile_seconds(lowered.reference, passes, plan.estimate.compile_s).values())
