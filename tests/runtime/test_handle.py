"""The caller's end of a request: streams, results, coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import optc
from optc.errors import EngineError, OptcError, RequestError
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Float32, StepBatch
from optc.runtime.handle import Handle
from optc.runtime.outputs import Completion, Delta
from optc.runtime.params import SamplingParams
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.structured.structure import Structure
from optc.runtime.text.tokenizer import Tokenizer
from optc.runtime.threads.awaiting import Submitters, submitted
from tests.runtime.support.texts import byte_level
from tests.runtime.support.toy import ToyExecutable, generate_naively, toy_spec
from tests.support.cost.only_new import only_new_objects

__all__ = ["only_new_objects"]

GREEDY = SamplingParams(temperature=0, max_tokens=6)
LONG = SamplingParams(max_tokens=None, ignore_eos=True, temperature=0)
#: A hang is not waited for longer than this; nothing else depends on it.
HANG_S = 30.0


class Gated(ToyExecutable):
    """Takes a step for each permission."""

    def __init__(self) -> None:
        super().__init__(toy_spec(max_context=64))
        self.permits = threading.Semaphore(0)
        self.began = threading.Event()

    def step(self, batch: StepBatch) -> Float32:
        self.began.set()
        assert self.permits.acquire(timeout=HANG_S)
        return super().step(batch)


@pytest.fixture
def gated() -> Iterator[tuple[Engine, Gated]]:
    executable = Gated()
    with Engine(lambda: executable) as engine:
        yield engine, executable
        executable.permits.release(1000)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(lambda: ToyExecutable(toy_spec(max_context=64))) as engine:
        yield engine


def completion(index: int) -> Completion:
    return Completion(index, str(index), (index,), "length", None, RequestMetrics(0.0))


def handle(n: int = 1, cancel: Callable[[Handle], None] = lambda handle: None) -> Handle:
    return Handle((1, 2), n, cancel)


def run(coroutine: object) -> object:
    async def bounded() -> object:
        return await asyncio.wait_for(coroutine, HANG_S)  # type: ignore[arg-type]

    return asyncio.run(bounded())


def test_it_ends_with_its_last_completion_and_orders_them() -> None:
    one = handle(2)
    one.finish(completion(1))
    assert not one.done
    with pytest.raises(TimeoutError):
        one.result(0)
    one.finish(completion(0))
    assert one.done
    assert [c.index for c in one.result().completions] == [0, 1]
    assert one.result().prompt_token_ids == (1, 2)
    assert list(one) == list(one) == []


def test_what_keeps_answers_has_them_before_anybody_is_told() -> None:
    """Who asks the same again at once finds it kept."""
    one, seen = handle(2), []

    def keep(of: Handle, output: Any) -> None:
        seen.append((of is one, of.done, [c.index for c in output.completions]))

    one.before_end = keep
    one.finish(completion(1))
    assert seen == []
    one.finish(completion(0))
    assert seen == [(True, False, [0, 1])]
    failed = handle()
    failed.before_end = keep
    failed.fail(ValueError())
    assert len(seen) == 1


def test_what_has_come_is_taken_without_waiting() -> None:
    one, deltas = handle(), [Delta(0, text, (1,)) for text in "abc"]
    assert one.waiting() == []
    one.push(deltas[0])
    one.push(deltas[1])
    assert one.waiting() == deltas[:2]
    one.push(deltas[2])
    one.finish(completion(0))
    assert one.waiting() == deltas[2:]
    assert one.waiting() == list(one) == []

    async def both() -> list[list[Delta]]:
        other = handle()
        for delta in deltas:
            other.push(delta)
        other.finish(completion(0))
        return [[delta, *other.waiting()] async for delta in other]

    assert run(both()) == [deltas]


def test_a_failure_ends_it_once_and_has_its_cause() -> None:
    one = handle()
    cause = ArithmeticError("broken")
    one.push(Delta(0, "a", (1,)))
    one.fail(cause, "it cannot go on")
    one.fail(ValueError("later"))
    for wait in (one.result, lambda: list(one)):
        with pytest.raises(EngineError, match="it cannot go on") as caught:
            wait()
        assert caught.value.__cause__ is cause
    finished = handle()
    finished.finish(completion(0))
    finished.fail(cause)
    assert finished.result().text == "0"


def test_it_says_whether_it_has_ended() -> None:
    handle = Handle((1, 2), 1, lambda handle: None)
    assert repr(handle) == "<optc.Handle of 2 prompt tokens, running>"
    handle.finish(completion(0))
    assert repr(handle) == "<optc.Handle of 2 prompt tokens, done>"


def test_the_engines_error_is_one_of_optcs() -> None:
    assert optc.EngineError is EngineError
    assert issubclass(EngineError, OptcError)
    assert issubclass(EngineError, RuntimeError)
    assert (EngineError.kind, EngineError.exit_code) == ("engine", 70)


def test_coroutines_get_results_and_streams(engine: Engine) -> None:
    model = ToyExecutable(toy_spec(max_context=64)).model

    async def use() -> None:
        awaited = await engine.submit([1], GREEDY)
        assert list(awaited.token_ids) == generate_naively(model, [1], 6)
        streamed = engine.submit([2], GREEDY)
        tokens = [t async for delta in streamed for t in delta.token_ids]
        assert tokens == generate_naively(model, [2], 6)
        assert (await streamed).token_ids == tuple(tokens)
        assert [delta async for delta in streamed] == []
        both = await asyncio.gather(*(engine.submit([i], GREEDY) for i in range(20)))
        assert [list(r.token_ids) for r in both] == [
            generate_naively(model, [i], 6) for i in range(20)
        ]
        deltas = [delta async for delta in engine.stream([3], GREEDY)]
        assert deltas[-1].finish_reason == "length"
        assert [t for d in deltas for t in d.token_ids] == generate_naively(model, [3], 6)

    run(use())


def test_streams_have_no_thread_of_their_own(gated: tuple[Engine, Gated]) -> None:
    engine, executable = gated

    async def use() -> int:
        streams = [engine.submit([i % 40], GREEDY) for i in range(50)]

        async def read(one: Handle) -> int:
            return sum([len(delta.token_ids) async for delta in one])

        tasks = [asyncio.create_task(read(one)) for one in streams]
        await asyncio.sleep(0)
        threads = threading.active_count()
        executable.permits.release(1000)
        assert await asyncio.gather(*tasks) == [6] * 50
        return threads

    before = threading.active_count()
    assert run(use()) == before


def test_a_cancelled_task_cancels_its_request(gated: tuple[Engine, Gated]) -> None:
    engine, executable = gated

    async def read(one: Handle) -> None:
        async for _ in one:
            pass

    async def use(start: Callable[[Handle], object]) -> Handle:
        one = engine.submit([1], LONG)
        task = asyncio.ensure_future(start(one))  # type: ignore[arg-type]
        await asyncio.sleep(0)  # it waits for the first token
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        executable.permits.release(2)
        return one

    for start in (read, lambda one: one):
        one = run(use(start))
        assert isinstance(one, Handle)
        result = one.result(HANG_S)
        assert result.finish_reason == "cancelled"
        assert result.output_tokens < 63


def test_a_wait_that_times_out_cancels(gated: tuple[Engine, Gated]) -> None:
    engine, executable = gated

    async def use() -> Handle:
        one = engine.submit([1], LONG)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(one, 0.01)
        executable.permits.release(2)
        return one

    one = run(use())
    assert isinstance(one, Handle)
    assert one.result(HANG_S).finish_reason == "cancelled"


def test_leaving_a_stream_cancels_its_request(
    gated: tuple[Engine, Gated], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, executable = gated
    submitted: list[Handle] = []
    submit = Engine.submit

    def remember(self: Engine, *arguments: object, **options: object) -> Handle:
        submitted.append(submit(self, *arguments, **options))  # type: ignore[arg-type]
        executable.permits.release(3)  # not before: the other request would take them all
        return submitted[-1]

    monkeypatch.setattr(Engine, "submit", remember)

    async def leave(error: type[BaseException] | None) -> None:
        async for _ in engine.stream([1], LONG):
            if error is not None:
                raise error
            break

    async def use() -> None:
        await leave(None)
        with pytest.raises(ZeroDivisionError):
            await leave(ZeroDivisionError)

    run(use())
    executable.permits.release(10)
    assert [one.result(HANG_S).finish_reason for one in submitted] == ["cancelled"] * 2


def test_a_task_that_is_cancelled_while_its_prompt_is_encoded(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, handles = threading.Event(), threading.Event(), []
    submit = Engine.submit

    def slowly(self: Engine, *arguments: object, **options: object) -> Handle:
        begun.set()
        assert go.wait(HANG_S)
        handles.append(submit(self, *arguments, **options))  # type: ignore[arg-type]
        return handles[-1]

    monkeypatch.setattr(Engine, "submit", slowly)
    cancelled: list[Handle] = []
    cancel = Handle.cancel

    def note(one: Handle) -> None:
        cancelled.append(one)
        cancel(one)

    monkeypatch.setattr(Handle, "cancel", note)

    async def use() -> None:
        task = asyncio.ensure_future(anext(engine.stream([1], LONG)))
        while not begun.is_set():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()

    run(use())
    engine._submitters._pool(False).shutdown()  # the loop does not wait for these threads
    assert set(handles) == set(cancelled)
    assert len(handles) == 1
    assert handles[0].result(HANG_S).finish_reason in ("cancelled", "length")


def test_an_invalid_request_whose_task_is_gone_disturbs_nobody() -> None:
    complaints: list[object] = []

    async def use() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        go = threading.Event()

        def refuse() -> Handle:
            assert go.wait(HANG_S)
            raise RequestError("no prompt")

        submitters = Submitters()
        task = asyncio.ensure_future(submitted(submitters.begin(refuse, compiles=False)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        submitters._pool(False).shutdown()
        await asyncio.sleep(0)

    run(use())
    gc.collect()
    assert complaints == []


@pytest.mark.parametrize("slow", ["compiling", "the loop's executor"])
def test_what_is_slow_holds_no_other_stream_up(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    go, compile_one = threading.Event(), GrammarCompiler._compile

    def slowly(self: GrammarCompiler, structure: Structure) -> object:
        assert go.wait(HANG_S)
        return compile_one(self, structure)

    monkeypatch.setattr(GrammarCompiler, "_compile", slowly)
    executable = ToyExecutable(toy_spec((0,), vocab=259, max_context=64))
    params = SamplingParams(temperature=0, max_tokens=8, choice=["yes", "no"])

    async def text_of(stream: AsyncIterator[Delta]) -> str:
        return "".join([delta.text async for delta in stream])

    async def use() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        with Engine(lambda: executable, tokenizer=Tokenizer(byte_level())) as engine:
            if slow == "compiling":
                held = [
                    asyncio.ensure_future(text_of(engine.stream("a", params))) for _ in "12345678"
                ]
            else:
                held = [asyncio.ensure_future(loop.run_in_executor(None, go.wait, HANG_S))]
            await asyncio.sleep(0)
            assert await text_of(engine.stream("a", GREEDY))
            assert (await (await engine.asubmit("a", GREEDY))).output_tokens == 6
            assert not any(task.done() for task in held)
            go.set()
            assert set(await asyncio.gather(*held)) <= {"yes", "no", True}

    run(use())


def test_a_coroutine_learns_what_is_wrong_before_the_first_delta(engine: Engine) -> None:
    async def use() -> None:
        for prompt in ([], [1] * 64):
            with pytest.raises(RequestError, match="prompt: the prompt"):
                await engine.asubmit(prompt, GREEDY)
        with pytest.raises(RequestError, match="structured output needs a tokenizer"):
            await engine.asubmit([1], SamplingParams(choice=["a"]))

    run(use())


#: Requests that no engine takes, by what is wrong: prompt, parameters, terms.
SEEN_AT_ONCE: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "prompt: the prompt is empty": ([], None, {}),
    "prompt: unknown token ids": ([10**6], None, {}),
    "prompt: the prompt has 99 tokens": ([1] * 99, None, {}),
    "prompt: a prompt is a text or a list": (None, None, {}),
    "prompt: there is no tokenizer": ("text", None, {}),
    "prompt: there is no tokenizer (": (optc.Chat([]), None, {}),
    "params: sampling parameters are": ([1], {"top_k": 1}, {}),
    "json_schema: structured output needs": ([1], SamplingParams(json_schema="{}"), {}),
    "stop strings need a tokenizer": ([1], SamplingParams(stop="a"), {}),
    "beam_width: a beam width of 99": ([1], SamplingParams(beam_width=99), {}),
    "stop_token_ids: unknown token": ([1], SamplingParams(stop_token_ids=[10**6]), {}),
    "logit_bias: unknown token": ([1], SamplingParams(logit_bias={10**6: 1}), {}),
    "adapter: the artifact takes no": ([1], None, {"adapter": "sql"}),
    "salt: a salt of 5": ([1], None, {"salt": 5}),
    "priority: a priority of": ([1], None, {"priority": "high"}),
    "deadline_s: a deadline of": ([1], None, {"deadline_s": -1}),
}
#: What only a tokenizer, a template or a grammar compiler can say.
SEEN_LATER: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "the prompt has 104 tokens": ("a" * 104, None, {}),
    "prompt: not valid Unicode": ("\ud800", None, {}),
    "messages: .* is no conversation": (optc.Chat("hi"), None, {}),
    "regex.*: ": ("a", SamplingParams(regex="("), {}),
    "grammar.*: ": ("a", SamplingParams(grammar="nonsense"), {}),
}


@pytest.mark.parametrize("message", SEEN_AT_ONCE)
def test_a_stream_refuses_at_its_call_what_is_seen_at_once(engine: Engine, message: str) -> None:
    prompt, params, terms = SEEN_AT_ONCE[message]
    for call in (engine.submit, engine.stream):
        with pytest.raises(RequestError) as caught:
            call(prompt, params, **terms)
        assert message in str(caught.value)
    with pytest.raises(RequestError):
        run(engine.asubmit(prompt, params, **terms))
    with pytest.raises(TypeError, match="sallt"):
        engine.stream([1], sallt="a")  # type: ignore[call-arg]


@pytest.mark.parametrize("message", SEEN_LATER)
def test_a_stream_that_is_awaited_refuses_before_its_first_delta(message: str) -> None:
    prompt, params, terms = SEEN_LATER[message]
    executable = ToyExecutable(toy_spec((0,), vocab=259, max_context=64))
    tokenizer = Tokenizer(byte_level(), chat_template="{{ messages }}")
    with Engine(lambda: executable, tokenizer=tokenizer) as engine:

        async def use() -> None:
            stream = engine.stream(prompt, params, **terms)
            for _ in range(2):
                with pytest.raises(RequestError, match=message):
                    await stream
                with pytest.raises(RequestError, match=message):
                    await anext(stream)
            with pytest.raises(RequestError, match=message):
                await engine.asubmit(prompt, params, **terms)

        run(use())
        with pytest.raises(RequestError, match=message):
            engine.submit(prompt, params, **terms)
        assert engine.metrics().steps == 0


def test_an_awaited_stream_is_the_stream(engine: Engine) -> None:
    model = ToyExecutable(toy_spec(max_context=64)).model

    async def use() -> None:
        stream = engine.stream([3], GREEDY)
        assert await stream is await stream is stream
        tokens = [t async for delta in stream for t in delta.token_ids]
        assert tokens == generate_naively(model, [3], 6)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(use())


@pytest.mark.parametrize("way", ["close", "cancel", "drop", "drop when awaited", "aclosing"])
def test_a_stream_that_nobody_reads_on_is_cancelled(gated: tuple[Engine, Gated], way: str) -> None:
    engine, executable = gated

    async def use() -> None:
        stream = engine.stream([1], LONG)
        if way == "close":
            await stream.aclose()
        elif way == "cancel":
            stream.cancel()
        elif way == "drop when awaited":
            await stream
        elif way == "aclosing":
            executable.permits.release(2)
            async with contextlib.aclosing(await stream):
                await anext(stream)
        else:
            del stream

    run(use())
    gc.collect()
    executable.permits.release(100)
    deadline = time.monotonic() + HANG_S
    while not (ended := engine.metrics().finished) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert ended == {"cancelled": 1}


def test_errors_reach_coroutines(gated: tuple[Engine, Gated]) -> None:
    engine, executable = gated

    async def use() -> None:
        with pytest.raises(RequestError, match="the prompt is empty"):
            await anext(engine.stream([]))
        one, two = engine.submit([1], LONG), engine.submit([2], LONG)
        task = asyncio.ensure_future(two)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert executable.began.wait(HANG_S)  # so the step fails, not the taking of the request
        executable.spec = None  # type: ignore[assignment]
        executable.permits.release(1)
        with pytest.raises(EngineError, match="the engine failed"):
            async for _ in one:
                pass
        with pytest.raises(EngineError, match="the engine failed"):
            await task
        with pytest.raises(EngineError, match="not running any more"):
            await anext(engine.stream([1]))

    run(use())


def test_a_slow_reader_holds_nobody_up(engine: Engine) -> None:
    async def use() -> None:
        slow, quick = engine.submit([1], LONG), engine.submit([2], GREEDY)
        stream = aiter(slow)
        first = await anext(stream)
        assert (await quick).finish_reason == "length"
        whole = await slow  # although only one delta was fetched
        rest = [token async for delta in stream for token in delta.token_ids]
        assert (*first.token_ids, *rest) == whole.token_ids

    run(use())


def test_two_readers_both_end(engine: Engine) -> None:
    async def use() -> None:
        one = engine.submit([1], GREEDY)

        async def read() -> int:
            return len([delta async for delta in one])

        assert sum(await asyncio.gather(read(), read(), read())) == 6

    run(use())


def test_many_deltas_call_the_loop_once() -> None:
    one, calls = handle(), 0

    async def use() -> list[Delta]:
        loop = asyncio.get_running_loop()
        call = loop.call_soon_threadsafe

        def count(*arguments: object) -> object:
            nonlocal calls
            calls += 1
            return call(*arguments)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = count  # type: ignore[assignment, method-assign]
        stream = aiter(one)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        for token in range(100):  # the loop does not get to run meanwhile
            one.push(Delta(0, "", (token,)))
        one.finish(completion(0))
        return [await waiting, *[delta async for delta in stream]]

    assert [d.token_ids[0] for d in run(use())] == list(range(100))  # type: ignore[attr-defined]
    assert calls == 1


def test_a_loop_that_is_gone_does_not_disturb_the_engine(gated: tuple[Engine, Gated]) -> None:
    engine, executable = gated
    one = engine.submit([1], GREEDY)
    loop = asyncio.new_event_loop()
    waiting = one.__await__()
    loop.call_soon(lambda: None)

    async def wait() -> None:
        waiting.send(None)  # as far as it goes without news

    loop.run_until_complete(wait())
    loop.close()
    executable.permits.release(1000)
    assert one.result(HANG_S).output_tokens == 6
    assert engine.submit([2], GREEDY).result(HANG_S).output_tokens == 6
    waiting.close()


def test_a_delta_is_there_before_anybody_is_woken() -> None:
    one, seen = handle(), []

    class Woken:
        def notify(self) -> bool:
            seen.append(one._deltas.get_nowait())
            return True

    one._wakers[0] = Woken()  # type: ignore[assignment]
    one.push(Delta(0, "a", (1,)))
    one.finish(completion(0))
    assert seen == [Delta(0, "a", (1,)), None]


def test_every_way_to_wait_says_that_a_fork_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stream(one: Handle) -> None:
        async for _ in one:
            raise AssertionError("a fork gets no deltas")

    async def wait(one: Handle) -> None:
        await one

    one = handle()
    one.finish(completion(0))
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    for ask in (lambda: one.result(0), lambda: next(iter(one))):
        with pytest.raises(EngineError, match="does not survive a fork"):
            ask()
    for coroutine in (stream(one), wait(one)):
        with pytest.raises(EngineError, match="does not survive a fork"):
            run(coroutine)


def test_an_engine_is_closed_behind_its_with() -> None:
    with Engine(lambda: ToyExecutable(toy_spec(max_context=64))) as engine:
        assert len(engine.generate([[1, 2]], GREEDY)) == 1
    with pytest.raises(OptcError, match="the engine is not running any more"):
        engine.generate([[1, 2]], GREEDY)


def test_who_asked_to_be_told_is_told_once(gated: tuple[Engine, Gated]) -> None:
    engine, gate = gated
    told: list[Handle] = []
    first = threading.Event()
    asked = engine.submit([3, 4], SamplingParams(max_tokens=2))
    asked.add_done_callback(told.append)
    asked.add_done_callback(lambda _: first.set())
    assert told == []
    gate.permits.release(10)
    assert first.wait(HANG_S)
    asked.add_done_callback(told.append)  # behind the end
    assert told == [asked, asked]


@pytest.mark.parametrize("end", ["fail", "finish"])
def test_who_asked_is_told_of_any_end(end: str) -> None:
    one, told = handle(), []
    one.add_done_callback(lambda of: told.append(of.done))
    if end == "fail":
        one.fail(RuntimeError())
    else:
        one.finish(completion(0))
    one.fail(RuntimeError())
    assert told == [True]
