"""Nobody waits for ever: whatever raises on the engine's thread, every handle ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from optc.errors import EngineError
from optc.runtime.engine import Engine
from optc.runtime.handle import Handle
from optc.runtime.kv.kv_blocks import KVBlocks
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.deadlines import Deadlines
from optc.runtime.requests.request import Request
from optc.runtime.scheduling.scheduler import Scheduler
from optc.runtime.settings import ServeSettings
from optc.runtime.text.detokenize import TextStream
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level
from tests.runtime.support.toy import ToyExecutable, toy_spec

#: A hang is not waited for longer than this; nothing else depends on it.
HANG_S = 30.0
#: Where the engine's thread passes while it serves.
PLACES = [
    (Core, "add"),
    (Core, "cancel"),
    (Core, "step"),
    (Core, "close"),
    (Deadlines, "add"),
    (Deadlines, "expired"),
    (Handle, "push"),
    (KVBlocks, "grow"),
    (KVBlocks, "free"),
    (Request, "completion"),
    (Request, "__init__"),
    (Scheduler, "add"),
    (Scheduler, "fork"),
    (Scheduler, "branch"),
    (Scheduler, "remove"),
    (TextStream, "add"),
    (ToyExecutable, "copy_kv"),
    (ToyExecutable, "step"),
]


class Panic(BaseException):
    """As the packages in Rust raise it: no Exception."""


class Fault:
    """Makes the n-th call of a method raise, before or after its work is done."""

    def __init__(self, place: Callable[..., Any], at: int, error: BaseException, late: bool):
        self.place, self.left, self.error, self.late = place, at, error, late
        self.raised = False

    def method(self) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            due = self.left == -1
            self.raised |= due
            if due and not self.late:
                raise self.error
            result = self.place(*arguments, **options)
            if due:
                raise self.error
            return result

        return call


def serve(fault: Fault) -> None:
    """Traffic of all kinds around a fault; fails if anybody is left waiting."""
    executable = ToyExecutable(toy_spec((0, 6), vocab=259, max_context=48))
    tight = 20 * 4 * executable.spec.kv_bytes_per_token
    engine = Engine(
        lambda: executable,
        ServeSettings(kv_memory=tight, block_size=4),
        tokenizer=Tokenizer(byte_level()),
    )
    short = SamplingParams(max_tokens=4, seed=1)
    several = SamplingParams(max_tokens=5, n=3, seed=2, stop=["zz"])
    handles: list[Handle] = []
    with suppress(EngineError), engine:  # it may die before all is handed in
        handles.append(engine.submit("abc", SamplingParams(max_tokens=None, ignore_eos=True)))
        handles.append(engine.submit("prefix", several))
        handles.append(engine.submit("beams", SamplingParams(max_tokens=4, beam_width=3)))
        handles.append(engine.submit("late", short, deadline_s=1e-9))
        handles[0].cancel()
        handles.append(engine.submit("after", short, deadline_s=1e6, priority=2))
        for handle in handles[1:]:
            end(handle)
            handles.append(engine.submit("last", SamplingParams(max_tokens=None)))
    for handle in handles:
        end(handle)
    with pytest.raises(EngineError, match="the engine is not running any more"):
        engine.submit("closed")


def end(handle: Handle) -> None:
    """The request and its stream end, in whatever way; a `TimeoutError` says that they do not."""
    with suppress(EngineError):
        handle.result(HANG_S)
    with suppress(EngineError):
        assert all(delta.index >= 0 for delta in handle)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("owner", "name"), PLACES)
def test_whatever_raises_every_handle_ends(
    owner: type, name: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in (0, 1, 2, 5, 9, 14):
        error = (ArithmeticError("broken"), Panic("broken"))[at % 2]
        fault = Fault(getattr(owner, name), at, error, late)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fault.method())
            serve(fault)
        assert fault.raised or at, "the traffic does not pass here"
