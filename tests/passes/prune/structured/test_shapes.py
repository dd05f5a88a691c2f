"""Shapes of weights without some units, beside those that a cut leaves."""

from __future__ import annotations

import numpy as np
import pytest

from optc.ir.pipeline.base import PassReport
from optc.passes.prune.structured.channels import KV_GROUPS, NEURONS, find_channels
from optc.passes.prune.structured.cut import cut_channels
from optc.passes.prune.structured.shapes import initializers_of, shapes_without
from tests.support.families import FAMILIES
from tests.support.models import dense_model


@pytest.mark.parametrize(("kind", "left"), [(NEURONS, [31, 48]), (KV_GROUPS, [1, 2])])
@pytest.mark.parametrize("family", ["llama", "phi3"])
def test_they_are_those_that_a_cut_leaves(family: str, kind: str, left: list[int]) -> None:
    model = dense_model(FAMILIES[family])
    found = find_channels(model, kind, PassReport())
    shapes = shapes_without(found, left)
    assert shapes.keys() == set(initializers_of(found))
    linears = {
        one.initializer: one for c in found for one in (*c.linears, *(r.linear for r in c.rows))
    }
    for channels, stay in zip(found, left, strict=True):
        cut_channels(model, channels, np.arange(stay))
    assert shapes == {v: tuple(reversed(v.shape.numpy())) for v in linears}  # type: ignore[union-attr]
