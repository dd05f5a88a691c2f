"""Many requests at once: work between two steps is bounded, and so is the queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from optc.errors import BusyError, EngineError
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Float32, StepBatch
from optc.runtime.loop.core import Core
from optc.runtime.loop.worker import AT_ONCE, CANCELLED_AT_ONCE
from optc.runtime.params import SamplingParams
from optc.runtime.requests import deadlines
from optc.runtime.settings import ServeSettings
from tests.runtime.support.toy import ToyExecutable, toy_spec

HANG_S = 30.0
SHORT = SamplingParams(temperature=0, max_tokens=2)
LONG = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)


class Gated(ToyExecutable):
    """Takes a step for each permission."""

    def __init__(self) -> None:
        super().__init__(toy_spec(max_context=64))
        self.permits, self.reached = threading.Semaphore(0), threading.Semaphore(0)

    def step(self, batch: StepBatch) -> Float32:
        self.reached.release()
        assert self.permits.acquire(timeout=HANG_S)
        return super().step(batch)


class Counted:
    """Number of calls of a method of `Core` lie between two steps."""

    def __init__(self, name: str, patch: pytest.MonkeyPatch) -> None:
        self.total, self.at_steps = 0, [0]
        call, step = getattr(Core, name), Core.step

        def counted(core: Core, *arguments: Any) -> Any:
            self.total += 1
            return call(core, *arguments)

        def stepped(core: Core) -> Any:
            self.at_steps.append(self.total)
            return step(core)

        patch.setattr(Core, name, counted)
        patch.setattr(Core, "step", stepped)

    @property
    def most(self) -> int:
        return max(after - before for before, after in pairwise(self.at_steps))


@pytest.fixture
def gated() -> Iterator[tuple[Engine, Gated]]:
    executable = Gated()
    with Engine(lambda: executable, ServeSettings(max_waiting=300)) as engine:
        engine.submit([1], LONG)
        assert executable.reached.acquire(timeout=HANG_S)
        yield engine, executable
        executable.permits.release(100_000)


def test_a_burst_is_added_bit_by_bit_and_holds_no_later_one_up(
    gated: tuple[Engine, Gated], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, executable = gated
    added = Counted("add", monkeypatch)
    burst = threading.Thread(target=lambda: engine.generate([[2]] * 280, SHORT))
    burst.start()
    while not engine._worker._inbox.qsize():
        pass
    later = engine.submit([3], SHORT)
    executable.permits.release(100_000)
    later.result(HANG_S)
    burst.join(HANG_S)
    assert not burst.is_alive()
    assert added.most <= AT_ONCE < 281 <= added.total


def test_what_is_cancelled_before_it_was_added_ends(gated: tuple[Engine, Gated]) -> None:
    engine, executable = gated
    handles = [engine.submit([2], LONG) for _ in range(200)]
    for handle in handles:
        handle.cancel()
    kept = engine.submit([3], SHORT)
    executable.permits.release(100_000)
    assert kept.result(HANG_S).finish_reason == "length"
    assert {handle.result(HANG_S).finish_reason for handle in handles} == {"cancelled"}
    assert not engine._worker._cancelled
    assert not engine._worker._of or not any(h in engine._worker._of for h in handles)


def test_cancels_and_deadlines_are_bounded_too(
    gated: tuple[Engine, Gated], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, executable = gated
    monkeypatch.setattr(deadlines, "AT_ONCE", 16)
    cut = Counted("_cut", monkeypatch)
    late = [engine.submit([2], LONG, deadline_s=1e-6) for _ in range(200)]
    executable.permits.release(100_000)
    assert {handle.result(HANG_S).finish_reason for handle in late} <= {"deadline"}
    assert cut.total >= 200
    assert cut.most <= 16 < CANCELLED_AT_ONCE


def test_too_many_are_refused_at_once(gated: tuple[Engine, Gated]) -> None:
    engine, executable = gated
    # one place is held by the request whose first step is not over
    handles = [engine.submit([2], SHORT) for _ in range(299)]
    for refused in (lambda: engine.submit([2], SHORT), lambda: engine.generate([[2]] * 2, SHORT)):
        with pytest.raises(BusyError, match="more than 300 requests would wait") as caught:
            refused()
        assert caught.value.where == "max_waiting"
    executable.permits.release(100_000)
    for handle in handles:
        assert handle.result(HANG_S).finish_reason == "length"
    assert len(engine.generate([[2]] * 300, SHORT)) == 300, "all places are free again"
    with pytest.raises(BusyError):
        engine.generate([[2]] * 301, SHORT)
    assert not engine._worker._cancelled


def test_places_are_free_again_however_a_request_ends(
    gated: tuple[Engine, Gated], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, executable = gated
    places = engine._worker._places
    add = Core.add

    def broken(core: Core, given: Any, leader: Any) -> Any:
        if given.params.seed == 13:
            raise ValueError("unlucky")
        return add(core, given, leader)

    monkeypatch.setattr(Core, "add", broken)
    handles = [
        engine.submit([2], SamplingParams(max_tokens=3, n=3, seed=1)),
        engine.submit([2], SamplingParams(max_tokens=3, beam_width=3)),
        engine.submit([2], SamplingParams(max_tokens=3, seed=13)),
        engine.submit([2], LONG, deadline_s=1e-6),
        engine.submit([2], LONG),
    ]
    handles[-1].cancel()
    assert len(places._free) <= 300 - 5 + 1
    executable.permits.release(100_000)
    for handle in handles:
        try:
            handle.result(HANG_S)
        except EngineError as error:
            assert "unlucky" in str(error)  # noqa: PT017 - one of them
    engine.generate([[1]], SHORT)
    assert len(places._free) == 300
