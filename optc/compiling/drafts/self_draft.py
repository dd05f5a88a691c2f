"""The self-draft of a compile: engines of the target's first layers, on the target's weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from optc.artifact.manifest import TokenizerEntry
from optc.artifact.writer import ArtifactWriter
from optc.backend import BuildOptions
from optc.compiling.building.built_engine import BuiltEngine, EngineBuilder
from optc.compiling.drafts.draft import Draft
from optc.compiling.drafts.layer_skip import keep_first_layers
from optc.compiling.drafts.shared_kv import means_the_same, sharing
from optc.compiling.lowering.lowering import Lowered, lower_dense
from optc.compiling.resolving.engines import EngineTarget
from optc.compiling.resolving.options import ResolvedOptions
from optc.errors import InputError
from optc.system.hardware.target import usable_threads
from optc.system.options import Auto

if TYPE_CHECKING:  # measures with ONNX Runtime
    from optc.compiling.drafts.choose_layers import LayerChoice

ROLE = "self"


def build_self_draft(
    options: ResolvedOptions,
    wanted: int | Auto,
    writer: ArtifactWriter,
    lowered: Lowered,
    targets: Sequence[BuiltEngine],
    limits: BuildOptions,
    tokenizer: TokenizerEntry | None,
) -> Draft:
    """Build engines of the target's first layers, one for each target engine; only code is new.

    They are not gated: the target verifies every token that they draft.

    Args:
        options: Of the compile.
        wanted: How many they have; ``auto`` chooses (`optc.compiling.drafts.choose_layers`), and
        builds
            nothing if no number pays.
        writer: Of the artifact.
        lowered: The target; the reference is where its layers are cut.
        targets: The target's engines.
        limits: Theirs.
        tokenizer: The target's; text to choose by needs one.

    Raises:
        InputError: The target has no more layers than that.
        UnsupportedError: The layers cannot be told apart.
    """
    facts: dict[str, Any] = {}
    layers = wanted
    if isinstance(layers, str):
        choice = _choose(options, writer, lowered, targets[0], tokenizer)
        facts["choice"] = choice.to_json()
        if choice.layers is None:
            return Draft(ROLE, (), facts, (choice.warning,))
        layers = choice.layers
    weights = {built.request.name: built.weights for built in targets}

    def on_the_targets_weights(request: EngineTarget) -> BuildOptions:
        return replace(limits, shared=weights[request.name])

    model = lowered.reference.clone()
    keep_first_layers(model, layers)
    runs = lower_dense(model, options.for_draft(), lowered.runs)
    builder = EngineBuilder(writer, options.engines)
    engines = builder.build_all(ROLE, model, on_the_targets_weights)
    if means_the_same(options.recipe, options.recipe):
        engines = sharing(engines, targets)
    facts |= {"layers": layers, "passes": [run.to_json() for run in runs]}
    return Draft(ROLE, tuple(engines), facts)


def _choose(
    options: ResolvedOptions,
    writer: ArtifactWriter,
    lowered: Lowered,
    target: BuiltEngine,
    tokenizer: TokenizerEntry | None,
) -> LayerChoice:
    """By the text of the gates."""
    from optc.compiling.drafts.choose_layers import TOKENS, WINDOWS, choose_layers
    from optc.proof.conversations.load import artifact_chat
    from optc.proof.conversations.read import read_texts
    from optc.proof.conversations.tokens import kept_stream, window_start
    from optc.proof.reference.text import cut_windows, default_documents

    if tokenizer is None:
        raise InputError(
            "the model has no tokenizer, and no text to choose by",
            where="--self-draft auto",
            hint="give the number of layers",
        )
    text = options.asked.eval_text
    tokenizer_file, bos = writer.folder / tokenizer.files[0], tokenizer.bos_token_id
    stream = kept_stream(
        default_documents() if text is None else read_texts(text),
        tokenizer_file,
        bos,
        next(iter(tokenizer.eos_token_ids), None),
        artifact_chat(writer.folder, tokenizer),
    )
    size = min(TOKENS, target.entry.spec.max_context)
    windows = cut_windows(stream, size, WINDOWS, window_start(tokenizer_file, bos))[:, :-1]
    return choose_layers(lowered.reference, windows, usable_threads())
