"""The self-draft of a compile: engines of the target's first layers, on the target's weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optc.artifact import ArtifactWriter
from optc.backend import BuildOptions
from optc.driver.built import Built, EngineBuilder
from optc.driver.draft import Draft
from optc.driver.engines import EngineRequest
from optc.driver.layer_skip import keep_first_layers
from optc.driver.lowering import Lowered, lower_dense
from optc.driver.options import CompileOptions

ROLE = "self"


def build_self_draft(
    options: CompileOptions,
    layers: int,
    writer: ArtifactWriter,
    lowered: Lowered,
    targets: Sequence[Built],
    limits: BuildOptions,
) -> Draft:
    """Build engines of the target's first layers, one for each target engine; only code is new.

    They are not gated: the target verifies every token that they draft.

    Args:
        options: Of the compile.
        layers: How many they have.
        writer: Of the artifact.
        lowered: The target; the reference is where its layers are cut.
        targets: The target's engines.
        limits: Theirs.

    Raises:
        InputError: The target has no more layers than that.
        UnsupportedError: The layers cannot be told apart.
    """
    weights = {built.request.name: built.weights for built in targets}

    def on_the_targets_weights(request: EngineRequest) -> BuildOptions:
        return replace(limits, shared=weights[request.name])

    model = lowered.reference.clone()
    keep_first_layers(model, layers)
    runs = lower_dense(model, replace(options, recipe=options.draft_recipe))
    builder = EngineBuilder(writer, options.engines)
    engines = tuple(builder.build_all(ROLE, model, on_the_targets_weights))
    return Draft(ROLE, engines, {"layers": layers, "passes": [run.to_json() for run in runs]})
