"""The self-draft of a compile: an engine of the target's first layers, on the target's weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from optc.artifact import ArtifactWriter, EngineEntry
from optc.backend import BuildOptions, EngineBuild, SharedWeights
from optc.driver.draft import Draft
from optc.driver.layer_skip import keep_first_layers
from optc.driver.lowering import Lowered, lower_dense
from optc.driver.options import CompileOptions

FOLDER = "engines/self"


def build_self_draft(
    options: CompileOptions,
    layers: int,
    writer: ArtifactWriter,
    lowered: Lowered,
    target: EngineBuild,
    target_folder: str,
    limits: BuildOptions,
) -> Draft:
    """Build an engine of the target's first layers; only its code is new.

    It is not gated: the target verifies every token that it drafts.

    Args:
        options: Of the compile.
        layers: How many it has.
        writer: Of the artifact.
        lowered: The target; the reference is where its layers are cut.
        target: The target's build.
        target_folder: Folder of its files in the artifact.
        limits: The target's.

    Raises:
        InputError: The target has no more layers than that.
        UnsupportedError: The layers cannot be told apart, or the backend cannot share weights.
    """
    model = lowered.reference.clone()
    keep_first_layers(model, layers)
    runs = lower_dense(model, replace(options, recipe=options.draft_recipe))
    shared = SharedWeights(f"../{target_folder.rsplit('/', 1)[-1]}", target.backend_data)
    build = options.backend.build(
        model, options.target, writer.subfolder(FOLDER), replace(limits, shared=shared)
    )
    engine = EngineEntry(
        name="self",
        role="self",
        backend=options.backend.name,
        target=options.target,
        requires=build.requires,
        spec=build.spec,
        data=build.backend_data,
        folder=FOLDER,
        files=build.files,
    )
    passes: list[dict[str, Any]] = [run.to_json() for run in runs]
    return Draft(engine, {"layers": layers, "passes": passes, "build": build.report})
