"""The engines of a layer that drafts by the target's hidden states (``--eagle FOLDER``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from optc.artifact.manifest import Source
from optc.artifact.writer import ArtifactWriter
from optc.backend import BuildOptions
from optc.compiling.building.built_engine import BuiltEngine, EngineBuilder
from optc.compiling.drafts.draft import Draft
from optc.compiling.drafts.eagle_layer import layer_weights, make_draft_layer
from optc.compiling.lowering.lowering import Lowered, lower_dense
from optc.compiling.resolving.engines import EngineTarget
from optc.compiling.resolving.options import ResolvedOptions
from optc.importer.additions.eagle import digest_eagle
from optc.ir.forms.ragged import RaggedStep
from optc.ir.pipeline import registry

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.compiling.recipes.recipe import Recipe

ROLE = "eagle"


def build_eagle(
    options: ResolvedOptions,
    folder: Path,
    writer: ArtifactWriter,
    lowered: Lowered,
    targets: Sequence[BuiltEngine],
    limits: BuildOptions,
) -> Draft:
    """Build engines of the layer in ``folder``, one for each target engine. They read the target's
    embedding and head, and have a file of their own for the layer's weights.

    They are not gated: the target verifies every token that they draft.

    Args:
        options: Of the compile.
        folder: What ``examples/training/train_eagle.py`` wrote.
        writer: Of the artifact.
        lowered: The target; the layer is made of the reference.
        targets: The target's engines.
        limits: Theirs.

    Raises:
        InputError: The folder is none, or its layer was trained for another model.
        UnsupportedError: The target's layers cannot be told apart, or a node cannot be lowered.
    """
    weights = {built.request.name: built.weights for built in targets}

    def on_the_targets_weights(request: EngineTarget) -> BuildOptions:
        return replace(limits, shared=replace(weights[request.name], partial=True))

    model, own = lowered.reference.clone(), options.for_draft()
    make_draft_layer(model, folder)
    settled = replace(own.recipe, pipeline=own.recipe.pipeline.settled(lowered.runs))
    own = replace(own, recipe=layer_recipe(settled, model))
    runs = lower_dense(model, own, ())
    digest = digest_eagle(folder)
    builder = EngineBuilder(writer, options.engines, Source(ROLE, digest, ROLE, {}))
    engines = tuple(builder.build_all(ROLE, model, on_the_targets_weights))
    facts = {"sha256": digest, "passes": [run.to_json() for run in runs]}
    return Draft(ROLE, engines, facts)


def layer_recipe(recipe: Recipe, layer: ir.Model) -> Recipe:
    """The recipe of the layer beside a target of ``recipe``: the same fusions, keys and values, and
    the head's own bits, so that both read one copy of it. Its other weights are rounded to the
    nearest of 4 bits: no statistics are known of their inputs."""
    own = layer_weights(layer)
    asked = (one.for_draft_layer(own) for one in recipe.pipeline.passes)
    passes = [one for one in asked if one is not None]
    # Of a prompt the layer's keys and values are wanted, and a guess behind its last row.
    added = registry.added_by("--eagle").from_options({"rows": "logits"})
    place = next(i for i, one in enumerate(passes) if one.gives is RaggedStep) + 1
    passes.insert(place, added)
    pipeline = replace(recipe.pipeline, passes=tuple(passes))
    pipeline.validate()
    return replace(recipe, pipeline=pipeline)
