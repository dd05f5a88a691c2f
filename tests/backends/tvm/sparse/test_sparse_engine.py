"""Engines with sparse weights: smaller, and bit for bit those with dense ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optc.backend import EngineBuild
from optc.backends.tvm import BACKEND
from optc.system.hardware.target import host_features, parse_target
from tests.backends.tvm.engine_driver import INT8, OPTIONS, Engine, EngineDriver
from tests.backends.tvm.sparse.sparse_models import SPARSE, pruned_model
from tests.support.shared import made_once

Engines = Callable[[str], Engine]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Engines:
    """``sparse``, and ``dense``: of the same model, whose weights an engine for AVX2 could read."""
    missing = SPARSE.missing_on(host_features())
    if missing:
        pytest.skip(f"this machine lacks {', '.join(missing)}")
    readers = {"sparse": (), "dense": (parse_target("x86-64-v3"),)}

    def make(name: str, folder: Path) -> tuple[Path, EngineBuild]:
        folder.mkdir(parents=True, exist_ok=True)
        options = replace(OPTIONS, readers=readers[name])
        return folder, BACKEND.build(pruned_model(INT8), parse_target("native"), folder, options)

    def get(name: str) -> Engine:
        folder, build = made_once(
            tmp_path_factory, f"engine-with-zeros-{name}", lambda folder: make(name, folder)
        )
        return Engine(folder, pruned_model(INT8), build)

    return get


def test_logits_have_the_bits_of_the_engine_with_dense_weights(built: Engines) -> None:
    """Prompts of several tiles, steps of one to several rows, of one and of many sequences."""
    drivers = [EngineDriver(built(name).load()) for name in ("sparse", "dense")]
    rng = np.random.default_rng(0)
    lengths = [(40, 0, 0), (1, 3, 0), (1, 1, 1), (2, 9, 20), (1, 0, 0)]
    for counts in lengths:
        step = {s: rng.integers(0, 128, n).tolist() for s, n in enumerate(counts) if n}
        sparse, dense = (driver.step(step) for driver in drivers)
        np.testing.assert_array_equal(sparse, dense)
        assert np.abs(sparse).max() > 0


def test_weights_are_smaller_and_the_report_says_which_are_sparse(built: Engines) -> None:
    sparse, dense = built("sparse"), built("dense")
    zeros = sparse.build.report["zeros"]
    assert len(zeros["sparse"]) == 9
    assert all(0.48 < share < 0.6 for share in zeros["sparse"].values())
    assert sparse.build.warnings == ()
    kinds = [
        {w["name"].rsplit(".", 1)[1] for w in engine.build.backend_data["weights"]}
        for engine in (sparse, dense)
    ]
    assert "mask" in kinds[0] - kinds[1]
    assert sparse.build.weight_bytes < 0.85 * dense.build.weight_bytes  # with the embedding
    (line,) = dense.build.warnings
    assert line.startswith("9 weights with 5")
    assert line.endswith("are stored dense: engines for x86-64-v3 have no sparse kernels")


def test_what_it_holds_and_reads_is_known_before_it_is_built(built: Engines) -> None:
    engine = built("sparse")
    estimate = BACKEND.estimate(engine.model, parse_target("native"), OPTIONS)
    assert estimate.weight_bytes == pytest.approx(engine.build.weight_bytes, rel=0.03)
    costs = engine.build.backend_data["costs"]["kernels"]
    assert estimate.costs.kernels.keys() == costs.keys()
    for name, cost in estimate.costs.kernels.items():
        assert cost.ops == costs[name]["ops"]
        for dimension, count in cost.bytes.items():
            assert count == pytest.approx(costs[name]["bytes"][dimension], rel=0.03)
