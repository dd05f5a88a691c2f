"""Inputs of encoders of images and sounds, patch by patch."""

from __future__ import annotations

import numpy as np

from optc.ir.forms.packed import Patches
from tests.support.ir_text import Array


def rows_of(x: Array, patches: Patches) -> dict[str, Array]:
    """Inputs of the form, patch by patch."""
    batch, count = len(x), patches.tokens * patches.rate
    width = x.shape[1] * int(np.prod(patches.sizes))
    features = np.zeros((batch, count, width), np.float32)
    starts = [range(0, size, part) for size, part in zip(x.shape[2:], patches.sizes, strict=True)]
    for row, place in enumerate(np.ndindex(*map(len, starts))):
        ends = zip(starts, place, patches.sizes, strict=True)
        cut = [slice(s[i], s[i] + part) for s, i, part in ends]
        features[:, patches.lead + row] = x[(slice(None), slice(None), *cut)].reshape(batch, -1)
    return {
        "features": features.reshape(-1, width),
        "positions": np.tile(np.arange(patches.tokens), batch).astype(np.int32),
        "query_starts": (np.arange(batch + 1) * patches.tokens).astype(np.int32),
    }
