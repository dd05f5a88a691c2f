"""The table of hits by threshold."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from benchmarks.serving.semantic_hits import THRESHOLDS, table


def _equal(texts: Sequence[str]) -> Any:
    """All questions mean the same."""
    return np.ones((len(texts), 2), np.float32) / np.sqrt(2).astype(np.float32)


def test_an_encoder_to_which_all_is_the_same_is_near_everywhere() -> None:
    lines = table(cast(Any, SimpleNamespace(embed=_equal)))
    assert len(lines) == 1 + len(THRESHOLDS)
    for line in lines[1:]:
        near, total = line.split()[3].split("/")
        assert near == total
