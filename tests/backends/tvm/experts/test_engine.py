"""An engine of mixtures of experts, every layer of another type, against the function bodies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from optc.backend import EngineBuild
from optc.backends.tvm import BACKEND
from optc.system.hardware.target import parse_target
from tests.backends.tvm.engine_driver import OPTIONS, Engine, EngineDriver, OracleDriver
from tests.backends.tvm.experts.models import mixture_model
from tests.support.shared import made_once

KINDS = ("bf16", "int8", "two-level")
TOKENS = np.random.default_rng(5).integers(0, 128, (3, 64)).tolist()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    def build(folder: Path) -> tuple[Path, EngineBuild]:
        folder.mkdir(parents=True, exist_ok=True)
        target = parse_target("native")
        return folder, BACKEND.build(mixture_model(KINDS), target, folder, OPTIONS)

    folder, built = made_once(tmp_path_factory, "experts", build)
    return Engine(folder, mixture_model(KINDS), built)


def test_logits_equal_the_function_bodies(engine: Engine) -> None:
    ours, oracle = EngineDriver(engine.load()), OracleDriver(engine.model)
    for rows in (
        {0: TOKENS[0][:37], 1: TOKENS[1][:5]},
        {0: TOKENS[0][37:38], 1: TOKENS[1][5:6]},
        {0: TOKENS[0][38:39], 1: TOKENS[1][6:20], 2: TOKENS[2][:33]},
    ):
        expected = oracle.step(rows)
        errors = np.sort(np.abs(ours.step(rows) - expected).max(axis=1))
        assert np.abs(expected).max() > 1.0
        # Some rows have an activation so near to a tie that it is rounded the other way.
        assert errors[len(errors) // 2] < 2e-5, errors
        assert errors[-1] < 0.05, errors


def test_a_row_has_the_same_bits_whatever_its_mates(engine: Engine) -> None:
    executable = engine.load()
    whole = EngineDriver(executable).step({0: TOKENS[0][:40], 1: TOKENS[1][:20]})
    alone = EngineDriver(executable)
    parts = [alone.step({1: TOKENS[1][i : i + 1]}) for i in range(20)]
    np.testing.assert_array_equal(np.concatenate(parts), whole[40:])
