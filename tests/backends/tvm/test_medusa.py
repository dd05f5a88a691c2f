"""Medusa's heads in an engine: against the function bodies, and the same bits in any batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optc.backends.tvm.replay import replay as replay_module
from optc.backends.tvm.replay.replay import Replays
from optc.errors import InputError
from optc.runtime.executable.executable import HeadedExecutable
from tests.backends.tvm.engine_driver import (
    FUSED,
    INT4_A16,
    INT8,
    SHAPE,
    Engine,
    EngineDriver,
    build,
    build_once,
)
from tests.support.drafts.heads import RATES, write_heads
from tests.support.families import model_after
from tests.support.ragged import RaggedDriver

ROWS = {0: [5, 6, 7, 8, 9], 1: [1, 2], 2: [99]}


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads")
    write_heads(folder, 3, SHAPE.hidden)
    return folder


def with_heads(pipeline: str, heads: Path, cache: str = "kv-cache") -> str:
    return pipeline.replace("kv-cache", f"{cache},medusa-heads{{folder={heads}}}")


def in_fp32(factory: pytest.TempPathFactory, heads: Path) -> Engine:
    """The engine of two tests, built by whichever asks first."""
    return build_once(factory, "engine-heads-fp32", with_heads(FUSED, heads))


@pytest.mark.parametrize(
    ("name", "pipeline"), [("fp32", FUSED), ("int8", INT8), ("int4-a16", INT4_A16)]
)
def test_heads_equal_the_function_bodies_in_any_batch(
    tmp_path_factory: pytest.TempPathFactory, heads: Path, name: str, pipeline: str
) -> None:
    pipeline = with_heads(pipeline, heads)
    if name == "fp32":
        engine = in_fp32(tmp_path_factory, heads)
    else:
        engine = build(tmp_path_factory.mktemp(name), SHAPE, pipeline, "native")
    assert engine.build.spec.accept_rates == tuple(
        tuple(rate / head for rate in RATES) for head in (1, 2, 3)
    )
    executable = engine.load()
    assert isinstance(executable, HeadedExecutable)
    with pytest.raises(InputError, match="no hidden states: no step was run"):
        executable.guess(np.array([0], np.int32))
    driver = EngineDriver(executable)
    driver.step(ROWS)
    wanted = np.array([7, 1, 4], np.int32)
    together = executable.guess(wanted).copy()
    assert together.shape == (3, 3, SHAPE.vocab)
    for index, row in enumerate(wanted):
        alone = executable.guess(np.array([row], np.int32))
        assert np.array_equal(alone[0], together[index])
    oracle = RaggedDriver(model_after(pipeline, SHAPE), extra=("hidden", "medusa_logits"))
    oracle.more_feeds["medusa_hidden"] = np.zeros((1, SHAPE.hidden), np.float32)
    oracle.step(ROWS)
    oracle.more_feeds["medusa_hidden"] = oracle.more_results[0][wanted]
    oracle.step({5: [1]})
    want = oracle.more_results[1].reshape(together.shape)
    assert np.abs(want).max() > 1.0
    np.testing.assert_allclose(together, want, atol=2e-5 if name == "fp32" else 0.05)


def test_a_step_has_the_bits_of_an_engine_without_heads(
    tmp_path_factory: pytest.TempPathFactory, heads: Path
) -> None:
    plain = build_once(tmp_path_factory, "engine-fp32", FUSED)  # other tests' as well
    both = (plain, in_fp32(tmp_path_factory, heads))
    logits = [EngineDriver(engine.load()).step(ROWS) for engine in both]
    assert np.array_equal(*logits)


def test_replayed_steps_and_guesses_have_the_bits_of_the_virtual_machine(
    tmp_path: Path, heads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = with_heads(INT8, heads, "kv-cache{tree=true}")
    engine = build(tmp_path, SHAPE, pipeline, "native")
    replayed = []
    original = Replays._replay

    def noted(self: Replays, steps: Any, plan: Any, inputs: Any) -> None:
        replayed.append(inputs.shape)
        original(self, steps, plan, inputs)

    monkeypatch.setattr(Replays, "_replay", noted)

    def run() -> list[Any]:
        executable = engine.load()
        assert isinstance(executable, HeadedExecutable)
        driver, found = EngineDriver(executable), []
        for token in range(1, 9):
            found.append(driver.step({0: [token, 5], 1: [token]}).copy())
            found += [executable.guess(np.array(rows, np.int32)).copy() for rows in ([2], [1, 2])]
        executable.close()
        return found

    monkeypatch.setattr(replay_module, "PATIENCE", 1 << 30)
    expected = run()
    assert not replayed
    monkeypatch.setattr(replay_module, "PATIENCE", 2)
    for ours, theirs in zip(run(), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len({len(shape) for shape in replayed}) == 2, "steps and guesses"
    assert len(replayed) > 12
