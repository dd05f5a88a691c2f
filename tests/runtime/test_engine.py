"""The engine's thread: results in order, streams, cancellation, errors that reach the caller."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from optc.errors import InputError, RequestError
from optc.runtime.engine import Engine
from optc.runtime.executable import Float32, StepBatch
from optc.runtime.handle import EngineError, Handle
from optc.runtime.outputs import Delta
from optc.runtime.params import SamplingParams
from optc.runtime.tokenizer import Tokenizer
from tests.runtime.texts import byte_level
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


def text_engine() -> tuple[Engine, ToyExecutable]:
    executable = ToyExecutable(toy_spec((0,), vocab=259, max_context=128))
    tokenizer = Tokenizer(byte_level(bos=True))
    return Engine(lambda: executable, tokenizer=tokenizer, eos_token_ids=[1]), executable


def test_generate_gives_results_in_order_and_every_prompt_its_own() -> None:
    executable = ToyExecutable(toy_spec((0, 6)))
    prompts = [[i] * (1 + 7 * (i % 3)) for i in range(12)]
    with Engine(lambda: executable) as engine:
        results = engine.generate(prompts, GREEDY)
    for prompt, result in zip(prompts, results, strict=True):
        assert list(result.token_ids) == generate_naively(executable.model, prompt, 6)
        assert result.prompt_token_ids == tuple(prompt)
        assert (result.prompt_tokens, result.output_tokens) == (len(prompt), 6)
        assert result.finish_reason == "length"
    assert len(executable.batches) < 30, "requests shared their steps"


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


def test_invalid_prompts_get_their_error_and_the_others_go_on() -> None:
    executable = ToyExecutable(toy_spec())
    with Engine(lambda: executable) as engine:
        results = engine.generate([[], [1, 2], [VOCAB], [3] * 64, "text"], GREEDY)
        assert [str(r.error) if r.error else None for r in results] == [
            "prompt: the prompt is empty (give some tokens)",
            None,
            f"prompt: unknown token ids [{VOCAB}] (they go from 0 to {VOCAB - 1})",
            "prompt: the prompt has 64 tokens; the context holds 64, prompt and output together "
            "(shorten it)",
            "prompt: there is no tokenizer (give token ids)",
        ]
        assert [r.finish_reason for r in results] == ["error", "length", *["error"] * 3]
        assert results[1].raise_for_error() is results[1]
        with pytest.raises(RequestError, match="the prompt is empty"):
            results[0].raise_for_error()
        with pytest.raises(RequestError, match="the prompt is empty"):
            engine.submit([])


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ([1.5], GREEDY, "prompt: a prompt is a text or integers"),
        ([1], SamplingParams(stop="x"), "stop strings need a tokenizer (use stop_token_ids)"),
        ([1], SamplingParams(stop_token_ids=[-1]), "stop_token_ids: unknown token ids [-1]"),
        ([1], SamplingParams(logit_bias={99: 1}), "logit_bias: unknown token ids [99]"),
    ],
)
def test_invalid_submissions_raise(prompt: object, params: SamplingParams, message: str) -> None:
    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        with pytest.raises(RequestError) as caught:
            engine.submit(prompt, params)  # type: ignore[arg-type]
        assert str(caught.value).startswith(message)


def test_params_for_each_prompt() -> None:
    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        lengths = [SamplingParams(max_tokens=n) for n in (1, 3)]
        assert [r.output_tokens for r in engine.generate([[1], [2]], lengths)] == [1, 3]
        assert engine.generate([]) == []
        with pytest.raises(RequestError, match="2 sampling parameters for 1 prompts"):
            engine.generate([[1]], lengths)


def test_streams_add_up_to_the_result() -> None:
    engine, _ = text_engine()
    with engine:
        params = SamplingParams(max_tokens=40, seed=5, n=3, logprobs=1)
        handle = engine.submit("hello", params)
        deltas = list(handle)
        result = handle.result()
    assert handle.done
    assert list(handle) == []
    assert len(result.completions) == 3
    for index, completion in enumerate(result.completions):
        mine: list[Delta] = [delta for delta in deltas if delta.index == index]
        assert completion.index == index
        assert "".join(delta.text for delta in mine) == completion.text
        assert tuple(t for delta in mine for t in delta.token_ids) == completion.token_ids
        assert tuple(p for delta in mine for p in delta.logprobs) == completion.logprobs
        assert [d.finish_reason for d in mine[:-1]] == [None] * (len(mine) - 1)
        assert mine[-1].finish_reason == completion.finish_reason
    assert len({completion.token_ids for completion in result.completions}) == 3


def test_seeds_repeat_and_their_absence_does_not() -> None:
    engine, _ = text_engine()
    with engine:
        seeded = SamplingParams(max_tokens=20, seed=11)
        first, second, other = engine.generate(
            ["abc"] * 3, [seeded, seeded, SamplingParams(max_tokens=20)]
        )
    assert first.token_ids == second.token_ids != other.token_ids


def test_texts_get_their_bos_token_and_end_at_eos_and_stop_strings() -> None:
    engine, executable = text_engine()
    prompt = [0, *(byte + 3 for byte in range(3))]
    whole = generate_naively(executable.model, prompt, 12)
    with engine:
        text = engine.tokenizer.decode(prompt)  # type: ignore[union-attr]
        plain = engine.generate(text, SamplingParams(temperature=0, max_tokens=12))[0]
        assert list(plain.prompt_token_ids) == prompt
        assert list(plain.token_ids) == whole
        cut = plain.text[3:5]
        stopped = engine.generate(text, SamplingParams(temperature=0, max_tokens=12, stop=cut))[0]
        ended = engine.generate(
            text, SamplingParams(temperature=0, max_tokens=12, logit_bias={1: 1e9})
        )[0]
    assert stopped.finish_reason == "stop"
    assert stopped.text == plain.text[: plain.text.index(cut)]
    assert (ended.finish_reason, ended.token_ids, ended.text) == ("stop", (1,), "")


def test_a_lone_surrogate_is_refused() -> None:
    engine, _ = text_engine()
    with engine:
        result = engine.generate(["\ud800", "fine"])
    assert str(result[0].error) == "prompt: not valid Unicode: surrogates not allowed"
    assert result[1].error is None


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


def test_an_interrupted_generate_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(handle: Handle) -> None:
        raise KeyboardInterrupt

    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(Handle, "result", interrupt)
            with pytest.raises(KeyboardInterrupt):
                engine.generate([[1], [2]], SamplingParams(max_tokens=None, ignore_eos=True))
        assert engine.submit([3], GREEDY).result().finish_reason == "length"
        finished = engine.metrics().finished
    assert finished["cancelled"] + finished["length"] == 3


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
    engine = Engine(lambda: executable)
    handles = [engine.submit([i], GREEDY) for i in range(3)]
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


def test_limits_follow_the_memory() -> None:
    spec = toy_spec(max_context=64)
    per_block = 4 * spec.kv_bytes_per_token
    executable = ToyExecutable(spec)
    with Engine(lambda: executable, kv_memory_bytes=5 * per_block, block_size=4) as engine:
        assert engine.max_context == 20
        assert engine.spec is spec
        result = engine.generate([[1] * 10, [1] * 20], SamplingParams(max_tokens=None))
        assert result[0].output_tokens == 10
        assert result[0].finish_reason == "length"
        assert "the context holds 20" in str(result[1].error)


def test_numpy_prompts_are_prompts() -> None:
    executable = ToyExecutable(toy_spec())
    with Engine(lambda: executable) as engine:
        prompt = np.array([1, 2, 3], np.int64)
        result = engine.generate([prompt], GREEDY)[0]  # type: ignore[list-item]
    assert list(result.token_ids) == generate_naively(executable.model, [1, 2, 3], 6)
