"""Types that are listed as causal LMs although they are encoders, or half of an encoder-decoder."""

from __future__ import annotations

from transformers import CONFIG_MAPPING

#: Types that say so nowhere in their configuration: bidirectional, or of audio, or of pictures.
_OTHERS = frozenset({"moshi", "git", "xlm", "xlnet", "cpmant", "musicgen", "musicgen_melody"})


def is_encoder_half(kind: str) -> bool:
    """True if nobody serves the type as a language model.

    Its configuration calls itself an encoder (``is_decoder`` is false and it has token types, or
    cross attention can be added), or an encoder-decoder.
    """
    if kind in _OTHERS:
        return True
    default = CONFIG_MAPPING[kind]
    if getattr(default, "is_encoder_decoder", False):
        return True
    values = default().to_dict() if kind not in UNMADE else {}
    if values.get("is_encoder_decoder"):
        return True
    return values.get("is_decoder") is False and not kind.startswith("gpt_neox")


#: Types whose default configuration cannot be made.
UNMADE = frozenset({"gemma4_assistant"})
