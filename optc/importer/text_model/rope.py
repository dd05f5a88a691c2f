"""The length to which rotary scalings take a model beyond its ``max_position_embeddings``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeGuard, cast

#: Types whose frequencies are stretched once and for all; those of others follow the length.
_STRETCHED = frozenset({"linear", "yarn", "llama3", "longrope", "su"})
#: Those of them whose models may be trained for less than the factor would give.
_PROVIDENT = frozenset({"llama3", "longrope", "su"})
#: More than any model's factor.
_MOST = 1 << 16
_ORIGINAL = "original_max_position_embeddings"


def lengthened(tokens: int, rope: object, original: object = None) -> int:
    """The longest sequence of a model in tokens.

    Some configurations state the length before scaling as ``max_position_embeddings``, others
    that behind it. Where layers differ in their scalings, it is always that behind it.

    Args:
        tokens: ``max_position_embeddings``.
        rope: ``rope_parameters`` or ``rope_scaling``.
        original: ``original_max_position_embeddings`` where it stands beside those.
    """
    if not isinstance(rope, Mapping):
        return tokens
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    before = rope.get(_ORIGINAL) or original or tokens
    if not isinstance(kind, str) or kind not in _STRETCHED:
        return tokens
    if not _is_number(factor) or not _is_number(before):
        return tokens
    if kind in _PROVIDENT and tokens != before:
        return tokens
    return max(tokens, int(before * min(factor, _MOST)))


def _is_number(value: object) -> TypeGuard[float]:
    return type(value) in (int, float) and math.isfinite(cast("float", value))
