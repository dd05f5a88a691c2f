"""A signal handler or a finalizer may use the engine wherever it interrupts its thread."""

from __future__ import annotations

import ast
import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import optc.runtime
from optc.errors import EngineError, RequestError
from optc.runtime.adapters.table import AdapterTable
from optc.runtime.engine import Engine
from optc.runtime.executable.adapter_spec import AdapterSpec
from optc.runtime.params import SamplingParams
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level
from tests.runtime.support.toy import ToyExecutable, toy_spec
from tests.support.cost.only_new import only_new_objects

__all__ = ["only_new_objects"]

#: A hang is not waited for longer than this; nothing else depends on it.
HANG_S = 20.0
SHORT = SamplingParams(temperature=0, max_tokens=2)
CHOICE = SamplingParams(temperature=0, max_tokens=8, choice=["a", "b"])
#: Which code is interrupted: the engine's own, and what it waits with.
OURS = (str(Path(optc.runtime.__file__).parent), threading.__file__, "concurrent")


class Interrupt:
    """Calls a handler once, before the n-th line that a thread reaches for the first time."""

    def __init__(self, at: int, handler: Callable[[], object]) -> None:
        self.at, self.handler, self.fired = at, handler, False
        self._seen: set[tuple[str, int]] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> Interrupt | None:
        if not any(part in frame.f_code.co_filename for part in OURS):
            return None
        if event == "line":
            self._seen.add((frame.f_code.co_filename, frame.f_lineno))
            if len(self._seen) > self.at and not self.fired:
                self.fired = True
                self.handler()
        return self


def interrupted(use: Callable[[], object], handler: Callable[[], object], at: int) -> bool:
    """True if the handler came in while ``use`` ran. Fails if either never ends."""
    interrupt, errors = Interrupt(at, handler), []

    def run() -> None:
        sys.settrace(interrupt)
        try:
            use()
        except (EngineError, RequestError):
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test fails with it
            errors.append(error)
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANG_S)
    assert not thread.is_alive(), f"a deadlock, interrupted at line {at}"
    assert not errors, errors
    return interrupt.fired


def toy_engine() -> Engine:
    return Engine(
        lambda: ToyExecutable(toy_spec((0,), vocab=259, max_context=64)),
        tokenizer=Tokenizer(byte_level()),
        eos_token_ids=[1],
    )


USES: dict[str, Callable[[Engine], object]] = {
    "submit": lambda engine: engine.submit("abc", SHORT).result(HANG_S),
    "stream": lambda engine: list(engine.submit("abc", SHORT)),
    "choice": lambda engine: engine.submit("abc", CHOICE).result(HANG_S),
    "call": lambda engine: engine._worker.call(lambda core: None),
    "close": lambda engine: engine.close(),
}


@pytest.mark.parametrize("use", USES)
def test_a_handler_may_close_the_engine_anywhere(use: str) -> None:
    at = 0
    while True:
        engine = toy_engine()
        fired = interrupted(lambda: USES[use](engine), engine._worker.close, at)  # noqa: B023
        engine.close()
        if not fired:
            break
        at += 2
    assert at > 10, "nothing was interrupted"


@pytest.mark.parametrize("use", ["submit", "choice", "call"])
def test_a_handler_may_use_the_engine_anywhere(use: str) -> None:
    with toy_engine() as engine:
        at = 0
        while interrupted(
            lambda: USES[use](engine), lambda: USES["choice"](engine), at
        ) and interrupted(lambda: USES[use](engine), lambda: USES["call"](engine), at):
            at += 1
    assert at > 15, "nothing was interrupted"


def test_a_table_of_adapters_may_be_interrupted_anywhere() -> None:
    def use(table: AdapterTable, name: str) -> None:
        table.publish(table.reserve(name))
        held = table.take(name, 2)
        table.unload(name)
        table.release(held)
        table.release(held)

    at, fired = 0, True
    while fired:
        table = AdapterTable(AdapterSpec(2, 16, ()))
        fired = interrupted(lambda: use(table, "a"), lambda: use(table, "b"), at)  # noqa: B023
        at += 1
        assert table.names == ()
        assert sorted(table.reserve(name).slot for name in "ab") == [0, 1], "a slot was lost"
    assert at > 10, "nothing was interrupted"


def test_an_adapter_that_is_unloaded_while_it_is_taken_is_not_held() -> None:
    at, fired = 0, True
    while fired:
        table = AdapterTable(AdapterSpec(1, 16, ()))
        table.publish(table.reserve("a"))

        def use() -> None:
            table.release(table.take("a", 1))  # noqa: B023

        fired = interrupted(use, lambda: table.unload("a"), at)  # noqa: B023
        at += 1
        assert not fired or table.reserve("a").slot == 0


def test_two_loads_of_one_name_do_not_both_get_it() -> None:
    table = AdapterTable(AdapterSpec(2, 16, ()))
    first, second = table.reserve("a"), table.reserve("a")
    table.publish(first)
    with pytest.raises(RequestError, match="an adapter 'a' is loaded already"):
        table.publish(second)
    assert table.take("a", 1) is first


def test_the_runtime_has_no_lock_that_cannot_be_entered_again() -> None:
    """The locks that are not here: `Latch` for events and futures, `SimpleQueue` for queues."""
    banned = {"Lock", "Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "Future"}
    found = [
        f"{path.name}:{node.lineno}: {name}"
        for path in Path(optc.runtime.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and (name := getattr(node.func, "attr", getattr(node.func, "id", ""))) in banned
        and path.name != "waking.py"  # an event of the loop, which no other thread waits for
    ]
    assert found == []


def ask(drop: Callable[[Engine], object]) -> Any:
    """The result of ``drop`` of an engine that has no name any more."""
    kept = drop(toy_engine())
    gc.collect()
    return kept


def test_a_handle_keeps_its_engine() -> None:
    long = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    for _ in range(5):
        assert len(ask(lambda engine: engine.submit("def f", long)).result(HANG_S).token_ids) == 40
        streamed = list(ask(lambda engine: engine.submit("def f", long)))
        assert sum(len(delta.token_ids) for delta in streamed) == 40
        waiting = ask(lambda engine: engine.submit("def f", long).__await__())
        gc.collect()
        waiting.close()


def test_an_engine_that_nobody_holds_closes_after_its_last_request() -> None:
    closed = threading.Event()

    class Toy(ToyExecutable):
        def close(self) -> None:
            super().close()
            closed.set()

    handle = Engine(lambda: Toy(toy_spec((0,), max_context=64))).submit([1], SHORT)
    assert handle.result(HANG_S).finish_reason == "length"
    assert closed.wait(HANG_S)
