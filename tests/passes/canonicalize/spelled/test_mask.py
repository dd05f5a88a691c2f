"""Scores that are computed alike are probed once for all layers, others each."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.canonicalize.spelled.mask import Probed
from optc.passes.canonicalize.spelled.probe import Probe, Scores
from tests.passes.canonicalize.spelled.test_probe import HEADS, NUMBERS, PLACES
from tests.passes.canonicalize.texts import exported

#: Two layers, the second of which differs where it is said.
LAYERS = """
    s = Mul (p, scale)
    x = Where (causal, s, low)
    {0} = {1} (q, {2})
    y = Where (causal, {0}, low)
    z = Add (x, y)
"""


@pytest.mark.parametrize(
    ("operator", "factor", "probes"),
    [("Mul", "scale", 1), ("Mul", "other", 2), ("Div", "scale", 2)],
)
def test_equal_regions_are_probed_once(
    operator: str, factor: str, probes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, made = Probe.scores, list[Scores]()

    def counted(probe: Probe) -> Scores:
        made.append(usual(probe))
        return made[-1]

    monkeypatch.setattr(Probe, "scores", counted)
    nodes = PLACES + LAYERS.format("t", operator, factor)
    given = NUMBERS | {"other": np.array(0.5, np.float32)}
    model = exported(
        "(int64[B,S] ids, float[B,3,S,S] p, float[B,3,S,S] q) => (float[B,3,S,S] z)",
        nodes,
        None,
        {
            name: array
            for name, array in given.items()
            if f" {name})" in nodes or f"{name}," in nodes
        },
    )
    values = {str(v.name): v for v in model.graph.inputs}
    values |= {str(v.name): v for node in model.graph for v in node.outputs}
    probed = Probed(model.graph)
    first, second = (probed.scores(values[x], values[p], HEADS) for x, p in ("xp", "yq"))
    assert len(made) == probes
    assert first.scale == pytest.approx(0.375)
    wanted = {"scale": 0.375, "other": 0.5}[factor]
    assert second.scale == pytest.approx(wanted if operator == "Mul" else 1 / wanted)
