"""The class of the model that an artifact was compiled from, by the config in its manifest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig, PreTrainedModel

from optc.artifact import Source
from optc.errors import InputError, UnsupportedError
from optc.importer.config import CONFIG_FILE, read_config
from optc.importer.export import quiet
from optc.importer.hugging_face import build_config
from optc.importer.skeleton import Skeleton, read_skeleton
from optc.system.scratch import Scratch

#: Of what other tools quantized; the export states its own.
_QUANTIZATION = "quantization_config"
#: Of which the engines' weights have been compared with what other readers make of exports.
MODEL_TYPES = ("llama", "qwen2", "qwen3", "mixtral", "qwen3_moe")


@dataclass(frozen=True)
class SourceClass:
    """A class without weights.

    Attributes:
        stated: Its config.json, without quantization.
        config: As transformers reads it.
        skeleton: Its parameters.
    """

    stated: dict[str, Any]
    config: PretrainedConfig
    skeleton: Skeleton

    @property
    def model(self) -> PreTrainedModel:
        """The class on the meta device."""
        if self.skeleton.conversion is None:
            raise ValueError("a skeleton without its class")
        return self.skeleton.conversion.model


def read_class(source: Source, weights: int) -> SourceClass:
    """The class of ``source``; no code of a model folder runs.

    Args:
        source: What was compiled.
        weights: How many the engine has.

    Raises:
        InputError: transformers does not accept the config.
        UnsupportedError: Exports of this type have not been tested, or its class is code of the
            model's folder.
    """
    stated = {key: value for key, value in source.config.items() if key != _QUANTIZATION}
    if "auto_map" in stated:
        raise UnsupportedError(
            "its class is code of the model's folder, which is not in the artifact",
            where=source.name,
        )
    if stated.get("model_type") not in MODEL_TYPES:
        raise UnsupportedError(
            f"models of type {stated.get('model_type')} are not exported",
            where=source.name,
            hint=f"optc exports {', '.join(MODEL_TYPES)}",
        )
    with Scratch("export") as made:
        folder = Path(made)
        (folder / CONFIG_FILE).write_text(json.dumps(stated), encoding="utf-8")
        try:
            config = read_config(folder, allow_remote_code=False)
            with quiet():
                built = build_config(folder, config, False)
                skeleton = read_skeleton(built, 4 * weights, allow_remote_code=False)
        except InputError as error:
            raise InputError(
                error.message, where=f"config of {source.name} in the manifest", hint=error.hint
            ) from error
    return SourceClass(stated, built, skeleton)
