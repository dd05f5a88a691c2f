"""An engine with sinks, slopes and chunks: its function bodies' logits, and trees' bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.tvm.engine_driver import Engine, EngineDriver, OracleDriver, build
from tests.support.families import FUSED, model_after
from tests.support.models import Dense
from tests.support.shared import made_once
from tests.support.trees import path_to, random_parents

SHAPE = Dense(
    head_dim=16, rotary_dim=16, windows=(0, 24), chunks=(20, 0), sinks=True, alibi=True, vocab=64
)
SPEC = FUSED.replace("kv-cache", "kv-cache{tree=true}")
RANDOM = np.random.default_rng(4)
KNOWN, OTHER, DRAFTS = (RANDOM.integers(0, SHAPE.vocab, n).tolist() for n in (47, 9, 12))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder, built = made_once(
        tmp_path_factory,
        "attention-variants",
        lambda folder: (folder, build(folder, SHAPE, SPEC, "native").build),
    )
    return Engine(folder, model_after(SPEC, SHAPE), built)


def test_a_chunk_keeps_the_tokens_of_a_window(engine: Engine) -> None:
    assert [group.window for group in engine.build.spec.groups] == [20, 24]


def test_logits_equal_the_function_bodies(engine: Engine) -> None:
    ours, oracle = EngineDriver(engine.load()), OracleDriver(engine.model)
    tree = random_parents([12, 3], [1, 2], 5)
    steps = [
        ({0: KNOWN[:30], 1: OTHER[:1]}, random_parents([30, 1], [30, 1], 0)),
        ({1: OTHER[1:], 0: KNOWN[30:]}, random_parents([8, 17], [8, 17], 0)),
        ({0: DRAFTS, 1: DRAFTS[:3]}, tree),
    ]
    for rows, parents in steps:
        got, want = (driver.step(rows, parents=parents) for driver in (ours, oracle))
        assert np.abs(want).max() > 1.0
        np.testing.assert_allclose(got, want, atol=2e-5)


def test_rows_of_a_tree_have_the_bits_of_linear_decoding(engine: Engine) -> None:
    executable = engine.load()
    parents = random_parents([12], [1], 7)
    driver = EngineDriver(executable, 32)
    driver.step({0: KNOWN})
    logits = driver.step({0: DRAFTS}, parents=parents)
    for leaf in set(range(12)) - set(parents.tolist()):
        path = path_to(parents, leaf)
        alone = EngineDriver(executable, seed=3)
        alone.step({0: KNOWN[:13]})
        want = alone.step({0: KNOWN[13:] + [DRAFTS[row] for row in path]})[-len(path) :]
        np.testing.assert_array_equal(logits[path], want)
