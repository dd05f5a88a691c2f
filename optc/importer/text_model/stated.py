"""Settings of config.json for the decoder, whether it lies there or in the part of a wrapper.

transformers looks at a wrapper's own settings first, and at its decoder's where those are not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Where wrappers keep their decoder's configuration, in transformers' order.
_PARTS = ("decoder", "generator", "text_config")


def decoder_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration of the decoder: a part of ``config``, or all of it.

    Args:
        config: A parsed config.json.
    """
    parts = (config.get(name) for name in _PARTS)
    return next((part for part in parts if isinstance(part, dict) and part), config)


def stated(config: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of ``config`` that is not null, and those of its decoder that it lacks."""
    whole = {**decoder_part(config), **{k: v for k, v in config.items() if v is not None}}
    return {key: value for key, value in whole.items() if value is not None}


def frame(config: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The first BOS and the first EOS of ``config``; None where it names none."""
    settings = stated(config)
    return _first(settings.get("bos_token_id")), _first(settings.get("eos_token_id"))


def _first(token: object) -> int | None:
    first = token[0] if isinstance(token, list) and token else token
    return first if isinstance(first, int) else None
