"""The class of the model that an artifact was compiled from, by the config in its manifest."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig, PreTrainedModel

from optc.artifact.manifest import Source
from optc.compiling.export.origins.trace import Origins, trace_origins
from optc.compiling.export.parameters import graph_name
from optc.errors import InputError
from optc.importer.config import CONFIG_FILE, read_config
from optc.importer.hugging_face import build_config
from optc.importer.skeleton import Skeleton, read_skeleton
from optc.importer.text_model.part import text_config
from optc.system.logs.quiet import quiet
from optc.system.scratch import Scratch

#: Of what other tools quantized; the export states its own.
_QUANTIZATION = "quantization_config"
_TIED = "tie_word_embeddings"


@dataclass(frozen=True)
class SourceClass:
    """A class without weights.

    Attributes:
        stated: Its config.json, without quantization; of a wrapper that of its text part.
        config: As transformers reads it.
        skeleton: Its parameters.
        origins: How they become the weights of an engine.
    """

    stated: dict[str, Any]
    config: PretrainedConfig
    skeleton: Skeleton
    origins: Origins

    @property
    def model(self) -> PreTrainedModel:
        """The class on the meta device."""
        if self.skeleton.conversion is None:
            raise ValueError("a skeleton without its class")
        return self.skeleton.conversion.model


def read_class(source: Source, weights: Collection[str], passes: Sequence[str]) -> SourceClass:
    """The class of ``source``; no code of a model folder runs.

    Args:
        source: What was compiled.
        weights: Names of the engine's.
        passes: Those that moved weights, in order (`PassEntry.moves_weights`).

    Raises:
        InputError: transformers does not accept the config.
        UnsupportedError: The class cannot be captured.
    """
    stated = {key: value for key, value in source.config.items() if key != _QUANTIZATION}
    try:
        whole = _built(stated)
        text = text_config(whole)
        built = whole if text is None else text
        if text is not None:
            stated = _of_text_part(text)
        skeleton = _skeleton(built, weights)
        if any(graph_name(name, skeleton.tied) for name in weights):
            # the checkpoint had a head of its own where the config tied it
            built.tie_word_embeddings = stated[_TIED] = False
            skeleton = _skeleton(built, weights)
    except InputError as error:
        raise InputError(
            error.message, where=f"config of {source.name} in the manifest", hint=error.hint
        ) from error
    with quiet():
        return SourceClass(stated, built, skeleton, trace_origins(built, skeleton, passes))


def _built(stated: dict[str, Any]) -> PretrainedConfig:
    with Scratch("export") as made:
        folder = Path(made)
        (folder / CONFIG_FILE).write_text(json.dumps(stated), encoding="utf-8")
        config = read_config(folder, allow_remote_code=False)
        with quiet():
            return build_config(folder, config, False)


def _skeleton(config: PretrainedConfig, weights: Collection[str]) -> Skeleton:
    with quiet():
        return read_skeleton(config, 4 * len(weights), allow_remote_code=False)


def _of_text_part(text: PretrainedConfig) -> dict[str, Any]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    alone = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[text.model_type]
    name = alone if isinstance(alone, str) else alone[0]
    return {**text.to_dict(), "architectures": [name], "model_type": text.model_type}
