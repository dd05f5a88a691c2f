"""The engine's thread: one caller of the executable, cancellation, failures that reach everyone."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from optc.errors import EngineError, InputError
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Float32, StepBatch
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.loop.latch import Latch
from optc.runtime.loop.worker import Worker
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.settings import ServeSettings
from tests.runtime.support.toy import VOCAB, ToyExecutable, generate_naively, toy_spec

GREEDY = SamplingParams(temperature=0, max_tokens=6)


class ThreadedToy(ToyExecutable):
    """Knows the thread of every call, and can hold its steps back or fail in one."""

    def __init__(self, **options: int) -> None:
        super().__init__(toy_spec((0, 6), **options))
        self.threads = {threading.get_ident()}
        self.gate = threading.Event()
        self.gate.set()
        self.fail_at: int | None = None
        self.started = threading.Event()

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        self.threads.add(threading.get_ident())
        super().allocate_kv(blocks_per_group, block_size)

    def step(self, batch: StepBatch) -> Float32:
        self.started.set()
        self.threads.add(threading.get_ident())
        assert self.gate.wait(20)
        if self.fail_at == len(self.batches):
            raise ArithmeticError("the kernel broke")
        return super().step(batch)

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        super().close()


def test_every_call_of_the_executable_comes_from_one_thread() -> None:
    opened: list[ThreadedToy] = []

    def open_executable() -> ThreadedToy:
        opened.append(ThreadedToy())
        return opened[0]

    engine = Engine(open_executable)
    with ThreadPoolExecutor(4) as pool:
        prompts = [[i, i + 1] for i in range(8)]
        outputs = list(pool.map(lambda p: engine.submit(p, GREEDY).result(), prompts))
    engine.close()
    assert len(opened[0].threads) == 1
    assert threading.get_ident() not in opened[0].threads
    for prompt, output in zip(prompts, outputs, strict=True):
        assert list(output.token_ids) == generate_naively(opened[0].model, prompt, 6)


def test_cancel_keeps_what_there_is() -> None:
    executable = ThreadedToy(max_context=64)
    with Engine(lambda: executable) as engine:
        handle = engine.submit([1], SamplingParams(max_tokens=60))
        first = next(iter(handle))
        handle.cancel()
        result = handle.result()
        assert result.finish_reason == "cancelled"
        assert result.token_ids[:1] == first.token_ids
        handle.cancel()
        assert engine.submit([2], GREEDY).result().finish_reason == "length"
        assert engine.metrics().free_blocks == engine.metrics().total_blocks


def test_threads_that_submit_and_cancel_at_random() -> None:
    executable = ToyExecutable(toy_spec((0, 6), max_context=40))
    oracle = executable.model

    def client(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(6):
            prompt = rng.integers(0, VOCAB, int(rng.integers(1, 20))).tolist()
            handle = engine.submit(prompt, SamplingParams(temperature=0, max_tokens=15))
            if rng.random() < 0.5:
                next(iter(handle))
                handle.cancel()
            tokens = list(handle.result().token_ids)
            assert tokens == generate_naively(oracle, prompt, len(tokens))
            assert tokens

    tight = 14 * 4 * executable.spec.kv_bytes_per_token
    with Engine(lambda: executable, ServeSettings(kv_memory=tight, block_size=4)) as engine:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(client, range(6)))
        metrics = engine.metrics()
    assert metrics.free_blocks == metrics.total_blocks
    assert sum(metrics.finished.values()) == 36


def test_waiting_can_time_out_and_go_on() -> None:
    executable = ThreadedToy()
    executable.gate.clear()
    with Engine(lambda: executable) as engine:
        handle = engine.submit([1], GREEDY)
        with pytest.raises(TimeoutError, match=r"the request has not ended after 0\.01 s"):
            handle.result(timeout_s=0.01)
        executable.gate.set()
        assert handle.result().finish_reason == "length"


def test_a_failing_step_reaches_everyone_who_waits() -> None:
    executable = ThreadedToy()
    executable.fail_at = 2
    executable.gate.clear()  # it must not fail before all have been handed in
    engine = Engine(lambda: executable)
    handles = [engine.submit([i], GREEDY) for i in range(3)]
    executable.gate.set()
    for handle in handles:
        with pytest.raises(EngineError, match="the engine failed") as caught:
            handle.result()
        assert isinstance(caught.value.__cause__, ArithmeticError)
        with pytest.raises(EngineError):
            list(handle)
    with pytest.raises(EngineError, match="the engine is not running any more"):
        engine.submit([1])
    engine.close()
    assert executable.closed


def test_a_failing_load_raises_in_the_caller() -> None:
    def broken() -> ToyExecutable:
        raise InputError("no such engine", where="here")

    with pytest.raises(InputError, match="here: no such engine"):
        Engine(broken)


def test_an_engine_that_cannot_be_used_is_closed() -> None:
    executable = ToyExecutable(toy_spec())
    with pytest.raises(InputError, match="1 bytes hold no KV block"):
        Engine(lambda: executable, ServeSettings(kv_memory=1))
    assert executable.closed


def test_closing_cancels_what_runs_and_is_final() -> None:
    executable = ThreadedToy()
    executable.gate.clear()
    engine = Engine(lambda: executable)
    running = engine.submit([1], SamplingParams(max_tokens=60))
    assert executable.started.wait(20)
    closer = threading.Thread(target=engine.close)
    closer.start()
    executable.gate.set()
    closer.join()
    assert running.result().finish_reason == "cancelled"
    assert executable.closed
    engine.close()
    with pytest.raises(EngineError, match="the engine is not running any more"):
        engine.generate([[1]])


def test_a_dropped_engine_ends_its_thread() -> None:
    executable = ToyExecutable(toy_spec())
    engine = Engine(lambda: executable)
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None
    assert executable.closed


def test_a_request_that_cannot_be_added_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = ThreadedToy(max_context=64)
    executable.gate.clear()
    add, broken = Core.add, SamplingParams(temperature=0, max_tokens=6, n=3)

    def add_two(core: Core, given: CompletionInput, leader: Request | None) -> Request:
        if given.params is broken and given.index == 2:
            raise ValueError("no third one")
        return add(core, given, leader)

    monkeypatch.setattr(Core, "add", add_two)
    with Engine(lambda: executable) as engine:
        running = engine.submit([1], GREEDY)
        assert executable.started.wait(20)
        wrong, waiting = engine.submit([2], broken), engine.submit([3], GREEDY)
        executable.gate.set()
        with pytest.raises(
            EngineError, match="cannot take the request: ValueError: no third one"
        ) as caught:
            wrong.result(20)
        assert isinstance(caught.value.__cause__, ValueError)
        assert [h.result(20).finish_reason for h in (running, waiting)] == ["length"] * 2
        metrics = engine.metrics()
        assert (metrics.running, metrics.waiting) == (0, 0)
        assert metrics.free_blocks == metrics.total_blocks
        engine.submit([2], GREEDY).result(20)


def test_what_is_handed_in_after_the_end_was_asked_for_ends() -> None:
    executable = ThreadedToy()
    executable.gate.clear()
    engine = Engine(lambda: executable)
    engine.submit([1], GREEDY)
    assert executable.started.wait(20)
    closer = threading.Thread(target=engine.close)
    closer.start()
    while not engine._worker._inbox.qsize():  # the end is in the inbox …
        time.sleep(0)
    late = engine.submit([2], GREEDY)  # … and this is behind it
    executable.gate.set()
    with pytest.raises(EngineError, match="the engine failed") as caught:
        late.result(20)
    assert str(caught.value.__cause__) == "the engine was closed"
    closer.join()


def test_a_call_that_ends_the_engine_is_answered() -> None:
    engine = Engine(lambda: ToyExecutable(toy_spec()))
    worker = engine._worker

    def explode(core: Core) -> None:
        raise ArithmeticError("the copy broke")

    with pytest.raises(EngineError, match="the engine failed") as caught:
        worker.call(explode)
    assert isinstance(caught.value.__cause__, ArithmeticError)
    with pytest.raises(EngineError, match="the engine is not running any more"):
        worker.call(explode)
    assert repr(engine).endswith("failed>")


def test_what_a_call_refuses_is_its_callers_alone() -> None:
    def refuse(core: Core) -> None:
        raise InputError("no such adapter")

    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        with pytest.raises(InputError, match="no such adapter"):
            engine._worker.call(refuse)
        assert engine.submit([1], GREEDY).result(20).finish_reason == "length"


def test_completions_take_over_the_prompt_of_the_first() -> None:
    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        engine.submit([1, 2, 3], SamplingParams(max_tokens=2, n=4, seed=1)).result(20)
        metrics = engine.metrics()
    assert (metrics.forked, metrics.prompt_tokens) == (3, 3)


def test_an_interrupted_load_ends_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    executable, wait = ToyExecutable(toy_spec()), Latch.wait

    def interrupt(latch: Latch, timeout_s: float | None = None) -> bool:
        if threading.current_thread() is threading.main_thread():
            wait(latch, timeout_s)
            raise KeyboardInterrupt
        return wait(latch, timeout_s)

    before = threading.active_count()
    with monkeypatch.context() as patch:
        patch.setattr(Latch, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Worker(lambda: Core(executable, KVPlan(4, (4,), 1, 16), ServeSettings(token_budget=8)))
    for thread in threading.enumerate():
        if thread.name == "optc-engine":
            thread.join(20)
    assert threading.active_count() == before
    assert executable.closed


FORKED = """
import os, optc
from optc.runtime.engine import Engine
from tests.runtime.support.toy import ToyExecutable, toy_spec

engine = Engine(lambda: ToyExecutable(toy_spec()))
handle = engine.submit([1], optc.SamplingParams(max_tokens=2))
handle.result()
child = os.fork()
if not child:
    for call in (lambda: engine.submit([1]), lambda: engine.generate([[1]]), handle.result,
                 lambda: list(handle), lambda: engine._worker.call(print)):
        try:
            call()
        except optc.EngineError as error:
            print(error.message, "|", error.hint)
    handle.cancel()
    print(repr(engine)[-7:])
    engine.close()
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
print(engine.submit([1], optc.SamplingParams(max_tokens=2)).result().finish_reason)
engine.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_has_no_engine_and_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    refused = (
        "a loaded engine does not survive a fork | call optc.load in each process, after the fork"
    )
    assert done.stdout.splitlines() == [refused] * 5 + ["forked>", "length"]
