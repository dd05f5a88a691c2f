"""An engine of a mixture of experts, every layer of another type, against the function bodies."""

from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm import BACKEND
from optc.target import parse_target
from tests.backends.tvm.engine_driver import OPTIONS, Engine, EngineDriver, OracleDriver
from tests.backends.tvm.expert_models import mixture_model
from tests.support.shared import made_once

TOKENS = np.random.default_rng(5).integers(0, 128, (3, 64)).tolist()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    def build(folder):  # type: ignore[no-untyped-def]
        folder.mkdir(parents=True, exist_ok=True)
        target = parse_target("native")
        return folder, BACKEND.build(mixture_model(), target, folder, OPTIONS)

    folder, built = made_once(tmp_path_factory, "experts", build)
    return Engine(folder, mixture_model(), built)


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
        assert errors[int(0.8 * len(errors))] < 2e-3, errors


def test_a_row_has_the_same_bits_whatever_its_mates(engine: Engine) -> None:
    executable = engine.load()
    whole = EngineDriver(executable).step({0: TOKENS[0][:40], 1: TOKENS[1][:20]})
    alone = EngineDriver(executable)
    parts = [alone.step({1: TOKENS[1][i : i + 1]}) for i in range(20)]
    np.testing.assert_array_equal(np.concatenate(parts), whole[40:])
