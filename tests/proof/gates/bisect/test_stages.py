"""The pass that is to blame, by what each adds."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.weights import LazyWeight
from optc.proof.gates.bisect.stages import (
    Stage,
    StageDivergences,
    compare_stages,
    logits_of,
    mean_kl,
)
from tests.support.models import Dense, dense_model


@pytest.mark.parametrize(
    ("kl", "culprit"),
    [
        ((0.0,), None),
        ((0.0, 1e-9, 5e-7), None),
        ((0.0, 1e-4, 1e-4, 3e-3, 3e-3), 3),
        ((0.0, 2e-3, 2e-3, 5e-3), 1),
        ((0.0, 1e-3, 1e-3, 5e-3), 3),
        ((0.0, 2.0, 1.0, 1.5), 1),
        ((0.0, 0.5, math.inf, 0.1), 2),
        ((0.0, 0.5, math.nan, math.nan), 2),
    ],
)
def test_the_first_that_adds_half_of_what_the_worst_one_adds(
    kl: tuple[float, ...], culprit: int | None
) -> None:
    assert StageDivergences(kl, ()).culprit() == culprit


SHAPE = Dense(windows=(0, 0), hidden=32, inner=32)
IDS = np.random.default_rng(5).integers(0, 61, (2, 9)).astype(np.int32)


def scaled(factors: dict[str, float]) -> ir.Model:
    """A dense model whose weights, by name, are multiplied."""
    model = dense_model(SHAPE)
    for name, factor in factors.items():
        value = model.graph.initializers[name]
        tensor = value.const_value
        assert isinstance(tensor, LazyWeight)
        value.const_value = tensor.map_rows(partial(np.multiply, np.float32(factor)), tensor.dtype)
    return model


def compared(*factors: dict[str, float], folder: Path) -> tuple[StageDivergences, list[int]]:
    """Divergences of stages from the plain model, and what progress was told."""
    stages = [Stage("plain", scaled({})), *(Stage("a pass", scaled(one)) for one in factors)]
    told: list[tuple[int, int]] = []
    found = compare_stages(stages, IDS, folder, 1, lambda done, of: told.append((done, of)))
    assert {of for _, of in told} == {len(stages)}
    return found, [done for done, _ in told]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_layers_are_those_of_the_last_stage(count: int, tmp_path: Path) -> None:
    """Stages before it only add their divergence."""
    first = {"0.o.weight": 2.0}
    found, told = compared(*([first] * (count - 1)), {"1.o.weight": 2.0}, folder=tmp_path)
    assert told == list(range(1, count + 2))
    whole, broken = found.sqnr_by_layer
    assert whole == 100
    assert broken is not None
    assert broken < 30
    assert found.kl[0] == 0
    assert len(found.kl) == count + 1
    assert min(found.kl[1:]) > 1e-6
    assert found.kl[1 : count - 1] == found.kl[2:count], "equal stages diverge equally"


def test_divergence_is_that_of_the_definition(tmp_path: Path) -> None:
    """Sum of p (log p - log q) over the vocabulary, in float64, and its mean over rows."""
    models = scaled({}), scaled({"1.o.weight": 3.0})
    logs = []
    for model in models:
        logits = logits_of(model, IDS, 1).astype(np.float64)
        assert logits.shape == (IDS.size, 61)
        logs.append(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    wanted = float((np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=1).mean())
    found, _ = compared({"1.o.weight": 3.0}, folder=tmp_path)
    assert found.kl[1] == pytest.approx(wanted, rel=1e-4)
    assert mean_kl(*(logits_of(model, IDS, 1) for model in models)) == found.kl[1]
