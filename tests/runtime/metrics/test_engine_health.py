"""Probes of a service see the state of an engine."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable

import pytest

from optc.errors import BusyError
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Float32, StepBatch
from optc.runtime.metrics.engine_health import EngineHealth
from optc.runtime.params import SamplingParams
from optc.runtime.settings import ServeSettings
from tests.runtime.support.toy import ToyExecutable, toy_spec

LONG = SamplingParams(max_tokens=None, ignore_eos=True, temperature=0)
#: A hang is not waited for longer than this; nothing else depends on it.
HANG_S = 30.0


class Held(ToyExecutable):
    """Its steps wait, and fail when told to."""

    def __init__(self) -> None:
        super().__init__(toy_spec(max_context=64))
        self.go = threading.Event()
        self.error: Exception | None = None

    def step(self, batch: StepBatch) -> Float32:
        assert self.go.wait(HANG_S)
        if self.error is not None:
            raise self.error
        return super().step(batch)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert condition()


def test_an_idle_engine_is_ready_and_a_closed_one_is_not() -> None:
    executable = ToyExecutable(toy_spec())
    with Engine(lambda: executable) as engine:
        health = engine.health()
        assert health == EngineHealth("running")
        assert (health.alive, health.ready) == (True, True)
        engine.generate([[1]], SamplingParams(max_tokens=3))
        assert engine.health() == EngineHealth("running", steps=3)
    health = engine.health()
    assert (health.state, health.error) == ("closed", "")
    assert (health.alive, health.ready) == (False, False)


def test_a_step_that_hangs_is_seen_and_holds_no_probe_up() -> None:
    executable = Held()
    with Engine(lambda: executable, ServeSettings(max_waiting=2)) as engine:
        assert engine.health().places == 2
        engine.submit([1], LONG)
        wait_for(lambda: engine.health().step_s > 0)
        first = engine.health().step_s
        wait_for(lambda: engine.health().step_s > first)
        health = engine.health()
        assert (health.alive, health.ready, health.places) == (True, True, 1)
        engine.submit([1], LONG)
        full = engine.health()
        assert (full.alive, full.ready, full.places) == (True, False, 0)
        with pytest.raises(BusyError):
            engine.submit([1], LONG)
        executable.go.set()
        wait_for(lambda: engine.health().running == 2)
        assert engine.health().ready


def test_a_failed_engine_says_why() -> None:
    executable = Held()
    engine = Engine(lambda: executable)
    handle = engine.submit([1], LONG)
    executable.error = ZeroDivisionError("in a kernel")
    executable.go.set()
    wait_for(lambda: handle.done)
    wait_for(lambda: engine.health().state == "failed")
    health = engine.health()
    assert health.error == "ZeroDivisionError: in a kernel"
    assert (health.alive, health.ready) == (False, False)
    found = json.loads(json.dumps(health.to_json()))
    assert found.keys() >= {"state", "error", "running", "waiting", "places", "alive", "ready"}


def test_a_fork_has_no_engine() -> None:
    executable = ToyExecutable(toy_spec())
    with Engine(lambda: executable) as engine:
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            os.write(write, engine.health().state.encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 100) == b"forked"
