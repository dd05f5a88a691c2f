"""The engine's thread: one caller of the executable, cancellation, failures that reach everyone."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from optc.errors import InputError
from optc.runtime.engine import Engine
from optc.runtime.executable import Float32, StepBatch
from optc.runtime.handle import EngineError
from optc.runtime.params import SamplingParams
from tests.runtime.toy import VOCAB, ToyExecutable, generate_naively, toy_spec

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
    with Engine(lambda: executable, kv_memory_bytes=tight, block_size=4) as engine:
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
        Engine(lambda: executable, kv_memory_bytes=1)
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
