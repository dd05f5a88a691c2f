"""Scaled rotary frequencies in a GGUF file: settings for linear and yarn, factors for llama3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

if TYPE_CHECKING:
    from gguf import GGUFWriter

#: Kind of the layers that see all tokens, where kinds differ.
_FULL = "full_attention"
#: Values of a config that readers of a file take for granted.
_GRANTED = {"beta_fast": 32, "beta_slow": 1, "truncate": True}
#: Types of models whose architecture in a file is llama, of which llama.cpp reads factors.
_WITH_FACTORS = ("llama", "mixtral")


def rope_of(config: PretrainedConfig) -> dict[str, Any]:
    """The rotation of positions; where layers differ, of those that see all tokens. Readers take
    that of the others for granted, and the check of the settings looks at it."""
    rope = dict(getattr(config, "rope_parameters", None) or {})
    return dict(rope.get(_FULL, rope))


def add_scaling(writer: GGUFWriter, rope: Mapping[str, Any]) -> None:
    """Write the settings of linear and yarn; of other types, and without their numbers, none."""
    from gguf import RopeScalingType

    kind, factor = rope.get("rope_type"), rope.get("factor")
    trained = rope.get("original_max_position_embeddings")
    if factor is None or kind not in ("linear", "yarn") or (kind == "yarn" and trained is None):
        return
    writer.add_rope_scaling_type(RopeScalingType(kind))
    writer.add_rope_scaling_factor(float(factor))
    if trained is not None:
        writer.add_rope_scaling_orig_ctx_len(int(trained))


def stated_settings(config: PretrainedConfig) -> dict[str, Any]:
    """The settings of `rope_of` that must be stated: none that readers take for granted, or that
    `frequency_factors` say."""
    rope = rope_of(config)
    if frequency_factors(config) is not None:
        return {"rope_type": "default", "rope_theta": rope["rope_theta"]}
    found = {key: value for key, value in rope.items() if _GRANTED.get(key) != value}
    every = getattr(config, "rope_parameters", None) or {}
    others = {kind: own for kind, own in every.items() if isinstance(own, dict) and kind != _FULL}
    return found | others


def frequency_factors(config: PretrainedConfig) -> npt.NDArray[np.float32] | None:
    """The divisors of the frequencies of llama3 [head_dim/2]; None for other types of scaling, and
    for architectures of which readers take no factors."""
    rope = rope_of(config)
    if rope.get("rope_type") != "llama3" or config.model_type not in _WITH_FACTORS:
        return None
    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    scaled = frequencies.numpy().astype(np.float64)
    count = len(scaled)
    plain = float(rope["rope_theta"]) ** -(np.arange(count) / count)
    factors: npt.NDArray[np.float32] = (plain / scaled).astype(np.float32)
    return factors
