"""An engine that nobody asks frees its memory, and is there again when somebody does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from optc.errors import EngineError, InputError, UnavailableError
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import StepInterface
from optc.runtime.kv.kv_plan import KVPlan, plan_kv
from optc.runtime.loop.core_factory import CoreFactory
from optc.runtime.params import SamplingParams
from optc.runtime.settings import ServeSettings
from tests.runtime.adapters.test_peft import SPEC as ADAPTERS
from tests.runtime.adapters.test_peft import saved
from tests.runtime.support.toy import ToyExecutable, generate_naively
from tests.serve.toys import SPEC, AdaptedExecutable

GREEDY = SamplingParams(temperature=0, max_tokens=6)
PATIENCE_S = 20


class Opening:
    """Opens toys, and keeps all of them."""

    def __init__(self, spec: StepInterface = SPEC) -> None:
        self.spec = spec
        self.made: list[ToyExecutable] = []
        self.fails = False

    def __call__(self) -> ToyExecutable:
        if self.fails:
            raise UnavailableError("the weights are gone", where="toy")
        self.made.append(AdaptedExecutable(self.spec))
        return self.made[-1]


def sleeper(opening: Opening, **settings: object) -> Engine:
    changed = ServeSettings(kv_memory="1MiB", sleep_after=0.02, **settings)  # type: ignore[arg-type]
    return Engine(opening, changed)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_it_sleeps_wakes_and_answers_as_before() -> None:
    opening = Opening()
    with sleeper(opening) as engine:
        plan = engine.kv_plan
        for count in (1, 2, 3):
            until(lambda: engine.health().asleep)
            assert [one.closed for one in opening.made] == [True] * count
            assert engine.health().ready
            (output,) = engine.generate([[5, 6, 7]], GREEDY)
            assert list(output.token_ids) == generate_naively(opening.made[-1].model, [5, 6, 7], 6)
            assert len(opening.made) == count + 1
            assert engine.kv_plan == plan
            assert engine.metrics().finished == {"length": count}
            assert engine.metrics().output_tokens == 6 * count
    assert all(one.closed for one in opening.made)


def test_cancelling_what_has_ended_does_not_wake_it() -> None:
    opening = Opening()
    with sleeper(opening) as engine:
        handle = engine.submit([5, 6], GREEDY)
        handle.result()
        until(lambda: engine.health().asleep)
        handle.cancel()
        time.sleep(0.05)
        assert engine.health().asleep
        assert len(opening.made) == 1
        assert not engine._worker._taken, "nothing of it is left to deal with"


def test_kept_answers_need_no_waking() -> None:
    opening = Opening()
    with sleeper(opening, answer_cache="1MiB") as engine:
        (first,) = engine.generate([[5, 6]], GREEDY)
        until(lambda: engine.health().asleep)
        (again,) = engine.generate([[5, 6]], GREEDY)
        assert again.token_ids == first.token_ids
        assert engine.health().asleep


def test_adapters_keep_it_awake(tmp_path: Path) -> None:
    opening = Opening(replace(SPEC, adapters=ADAPTERS))
    with sleeper(opening) as engine:
        until(lambda: engine.health().asleep)
        engine.load_adapter("sql", saved(tmp_path))
        assert not engine.health().asleep
        time.sleep(0.1)
        assert not engine.health().asleep
        engine.unload_adapter("sql")
        until(lambda: engine.health().asleep)


def test_a_sleeping_engine_closes() -> None:
    opening = Opening()
    engine = sleeper(opening)
    until(lambda: engine.health().asleep)
    engine.close()
    assert engine.health().state == "closed"
    with pytest.raises(EngineError):
        engine.generate([[5]], GREEDY)
    assert len(opening.made) == 1


def test_what_cannot_be_loaded_again_fails_and_says_why() -> None:
    opening = Opening()
    engine = sleeper(opening)
    until(lambda: engine.health().asleep)
    opening.fails = True
    with pytest.raises(EngineError) as failed:
        engine.generate([[5]], GREEDY)
    assert "the weights are gone" in str(failed.value.__cause__)
    assert engine.health().state == "failed"
    engine.close()


def test_it_stays_awake_without_the_setting() -> None:
    opening = Opening()
    with Engine(opening, ServeSettings(kv_memory="1MiB")) as engine:
        time.sleep(0.1)
        assert not engine.health().asleep


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan])
def test_seconds_that_are_none(seconds: float) -> None:
    with pytest.raises(InputError, match="sleep_after"):
        ServeSettings(sleep_after=seconds)


def test_the_first_plan_counts_whatever_is_free_later(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[int | None] = []

    def planned(spec: StepInterface, budget: int | None, *more: Any) -> KVPlan:
        budgets.append(budget)
        return plan_kv(spec, budget, *more)

    monkeypatch.setattr("optc.runtime.loop.core_factory.plan_kv", planned)
    opening = CoreFactory(Opening(), ServeSettings())
    before = opening()
    first = opening.plan
    before.close()
    after = opening(before)
    after.close()
    assert budgets == [None, first.bytes]
    assert opening.plan == first
    assert after.adapters is before.adapters
