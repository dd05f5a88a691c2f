"""Progress of work that is given nobody to tell."""

from __future__ import annotations

import numpy as np
import pytest

from optc.proof.reference.blockwise import observe
from optc.system.progress import tell, telling
from tests.support.dense_models import V, dense_model


def test_what_is_told_reaches_the_innermost_listener_only() -> None:
    outer: list[tuple[str, int, int]] = []
    inner: list[tuple[str, int, int]] = []
    tell("nobody", 0, 1)
    with telling(lambda *what: outer.append(what)):
        with telling(lambda *what: inner.append(what)):
            tell("a", 1, 2)
        with pytest.raises(KeyError), telling(lambda *what: inner.append(what)):
            raise KeyError
        tell("b", 2, 2)
    tell("nobody", 1, 1)
    assert (outer, inner) == ([("b", 2, 2)], [("a", 1, 2)])


def test_a_calibration_tells_block_by_block() -> None:
    told: list[tuple[str, int, int]] = []
    tokens = np.random.default_rng(0).integers(0, V, (2, 8), np.int32)
    with telling(lambda *report: told.append(report)):
        observe(dense_model(3), tokens, [], 1)
    assert told == [("calibration", done, 3) for done in (1, 2, 3)]
