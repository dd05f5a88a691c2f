"""Requests that replicas compute: the answers of one engine, and what happens when one ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from optc.errors import BusyError, EngineError, InputError, ReplicaLostError, RequestError
from optc.runtime.kv_events.events import StepLog
from optc.runtime.outputs import RequestOutput
from optc.runtime.params import SamplingParams
from optc.runtime.requests.prompts import Chat
from optc.runtime.settings import ServeSettings
from tests.runtime.adapters.test_peft import SPEC as ADAPTERS
from tests.runtime.adapters.test_peft import saved
from tests.runtime.support.toy import ToyExecutable, toy_spec
from tests.serve.replicas.local import Make, toy
from tests.serve.toys import (
    AdaptedExecutable,
    FailingExecutable,
    WaitingExecutable,
    toy_engine,
)

#: Nothing takes so long unless it hangs.
PATIENCE_S = 60
GREEDY = SamplingParams(temperature=0, max_tokens=12)
#: An engine that finds all that it had.
WHOLE = toy_spec((0,), vocab=280, max_context=512, max_sequences=4)
FULL: dict[str, Any] = {"executable": lambda: ToyExecutable(WHOLE), "block_size": 8}


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that comes."""
    ends_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.005)


def same(one: RequestOutput, other: RequestOutput) -> bool:
    """All but the times is equal."""
    fields = ("index", "text", "token_ids", "finish_reason", "logprobs", "error")
    pairs = zip(one.completions, other.completions, strict=True)
    return one.prompt_logprobs == other.prompt_logprobs and all(
        getattr(a, name) == getattr(b, name) for a, b in pairs for name in fields
    )


@pytest.mark.parametrize(
    "params",
    [
        GREEDY,
        SamplingParams(seed=7, max_tokens=20, logprobs=2),
        SamplingParams(seed=7, max_tokens=9, n=3),
        SamplingParams(seed=1, max_tokens=40, stop=["a", "e"]),
        SamplingParams(temperature=0, max_tokens=3, prompt_logprobs=1),
        SamplingParams(temperature=0, max_tokens=40, json_schema={"type": "boolean"}),
        SamplingParams(beam_width=2, max_tokens=6),
    ],
    ids=["greedy", "logprobs", "n", "stop", "prompt", "json", "beams"],
)
def test_answers_are_those_of_one_engine(make: Make, params: SamplingParams) -> None:
    engine, replicas = make()
    prompts = ["one", "another one", Chat([{"role": "user", "content": "hi"}]), [5, 6, 7]]
    with toy_engine() as alone:
        for mine, its in zip(
            engine.generate(prompts, params), alone.generate(prompts, params), strict=True
        ):
            assert same(mine, its)
    assert set(replicas.sent) == {"r0", "r1"}


def test_a_stream_adds_up_to_the_answer(make: Make) -> None:
    engine, _ = make()
    handle = engine.submit("stream", SamplingParams(seed=3, max_tokens=30))
    deltas = list(handle)
    output = handle.result()
    assert "".join(one.text for one in deltas) == output.text
    assert tuple(token for one in deltas for token in one.token_ids) == output.token_ids
    assert deltas[-1].finish_reason == output.finish_reason
    metrics = output.metrics
    assert len(metrics.token_times_s) == len(output.token_ids)
    times = [metrics.arrived_s, *metrics.token_times_s, metrics.finished_s or 0]
    assert times == sorted(times)


def test_defaults_of_the_model_hold(make: Make) -> None:
    engine, _ = make()
    engine._intake._defaults = {"max_tokens": 3, "temperature": 0.0}
    (output,) = engine.generate(["hi"])
    assert len(output.token_ids) <= 3


def test_a_prefix_goes_where_it_is(make: Make) -> None:
    engine, replicas = make(toy(**FULL), toy(**FULL))
    groups = [f"{group} is a beginning that some of the requests share; " for group in "abcdef"]
    prompts = [f"{group}{number}" for number in range(8) for group in groups]
    with toy_engine(**FULL) as alone:
        for prompt in prompts:
            assert same(*engine.generate([prompt], GREEDY), *alone.generate([prompt], GREEDY))
        best = alone.metrics().prefix_hit_rate
    places: dict[str, set[str]] = {}
    for prompt, name in zip(prompts, replicas.sent, strict=True):
        places.setdefault(prompt[0], set()).add(name)
    assert all(len(names) == 1 for names in places.values())
    assert {name for names in places.values() for name in names} == {"r0", "r1"}
    until(lambda: engine.metrics().finished == {"length": len(prompts)})
    assert engine.metrics().prefix_hit_rate >= 0.95 * best > 0.5


def test_prompts_that_come_together_go_together(make: Make) -> None:
    engine, replicas = make(toy(**FULL), toy(**FULL))
    prompts = [f"{group * 200}{number}" for group in "ab" for number in range(4)]
    engine.generate(prompts, GREEDY)
    assert len({*replicas.sent[:4]}) == len({*replicas.sent[4:]}) == 1
    assert replicas.sent[0] != replicas.sent[4]


def test_adapters_and_salts_have_prefixes_of_their_own(make: Make, tmp_path: Path) -> None:
    spec = replace(WHOLE, adapters=ADAPTERS)
    opened = toy(executable=lambda: AdaptedExecutable(spec), block_size=8)
    folders = {name: tmp_path / name for name in ("one", "two")}
    for folder in folders.values():
        folder.mkdir()
        saved(folder)
    engine, replicas = make(opened, opened, adapters=folders)
    assert engine.adapters == ("one", "two")
    engine.load_adapter("one", folders["one"])
    with pytest.raises(InputError, match="the replicas have no adapter 'three'"):
        engine.load_adapter("three", folders["one"])
    prompt = "a prefix that is long enough for some blocks of it"
    terms = [{}, {"adapter": "one"}, {"adapter": "two"}, {"salt": "mine"}]
    first = [engine.generate([prompt], GREEDY, **each)[0] for each in terms]  # type: ignore[arg-type]
    again = [engine.generate([prompt], GREEDY, **each)[0] for each in terms]  # type: ignore[arg-type]
    assert replicas.sent[:4] == replicas.sent[4:]
    assert all(one.metrics.cached_tokens == 0 for one in first)
    assert all(one.metrics.cached_tokens > 32 for one in again)
    assert len({one.token_ids for one in first}) == 3
    engine.unload_adapter("one")  # no request holds it any more
    assert engine.adapters == ("two",)


def test_one_that_ends_fails_its_requests_alone(make: Make) -> None:
    steps: list[WaitingExecutable] = []

    def opened(log: StepLog) -> object:
        steps.append(WaitingExecutable())
        return toy_engine(lambda: steps[-1], log=log)

    engine, replicas = make(opened, opened)
    params = SamplingParams(temperature=0, max_tokens=50)
    handles = [engine.submit(text * 40, params) for text in "abab"]
    until(lambda: len(replicas.sent) == 4)
    lost = [handle for handle, name in zip(handles, replicas.sent, strict=True) if name == "r0"]
    kept = [handle for handle in handles if handle not in lost]
    assert lost
    assert kept
    for one in steps:
        one.let_go(12)  # the prompts, and some tokens
    assert all(next(iter(handle)).token_ids for handle in handles)
    replicas.kill("r0")
    for one in steps:
        one.let_go()
    for handle in lost:
        with pytest.raises(EngineError, match="the replica that computed the answer is gone") as it:
            handle.result(PATIENCE_S)
        assert isinstance(it.value.__cause__, ReplicaLostError)
    with toy_engine() as alone:
        for handle in kept:
            assert same(
                handle.result(PATIENCE_S),
                *alone.generate([list(handle.prompt_token_ids)], params),
            )
    before = len(replicas.sent)
    engine.generate(["c" * 40, "d" * 40], GREEDY)
    assert set(replicas.sent[before:]) == {"r1"}
    assert engine.health().ready
    replicas.add("r2", toy())
    until(lambda: "r2" in engine._worker._directory.replicas)  # type: ignore[attr-defined]
    engine.generate(["e" * 40, "f" * 40], GREEDY)
    assert "r2" in replicas.sent


def test_without_a_replica_requests_are_turned_away(make: Make) -> None:
    engine, replicas = make(toy())
    replicas.kill("r0")
    until(lambda: not engine.health().ready)
    with pytest.raises(BusyError):
        engine.submit("hi")
    assert engine.health().alive


def test_an_engine_that_fails_is_a_replica_that_is_gone(make: Make) -> None:
    engine, _ = make(toy(executable=lambda: FailingExecutable(3)))
    with pytest.raises(EngineError, match="no more steps") as it:
        engine.submit("hi", SamplingParams(max_tokens=50)).result(PATIENCE_S)
    assert isinstance(it.value.__cause__, ReplicaLostError)
    until(lambda: not engine.health().ready)


def test_a_request_that_is_cancelled_ends_with_what_it_has(make: Make) -> None:
    steps = WaitingExecutable()
    engine, replicas = make(toy(executable=lambda: steps))
    handle = engine.submit("hi", SamplingParams(temperature=0, max_tokens=60, n=2))
    steps.let_go(3)
    first = next(iter(handle))
    handle.cancel()
    output = handle.result(PATIENCE_S)
    assert [one.finish_reason for one in output.completions] == ["cancelled"] * 2
    assert output.completions[first.index].token_ids[: len(first.token_ids)] == first.token_ids
    steps.let_go()
    until(lambda: replicas.engines["r0"].metrics().finished == {"cancelled": 2})
    engine.submit("hi").cancel()  # before it has begun


def test_a_request_fails_alone(make: Make) -> None:
    engine, _ = make()
    with pytest.raises(RequestError, match="unknown token ids"):
        engine.submit("hi", SamplingParams(stop_token_ids=[99999]))
    digits = [byte for byte in range(280) if byte != 1]
    none = SamplingParams(regex="[0-9]+", logit_bias=dict.fromkeys(digits, float("-inf")))
    (output,) = engine.generate(["hi"], none)
    assert isinstance(output.error, RequestError)
    assert engine.generate(["hi"], GREEDY)


def test_a_deadline_holds_there(make: Make) -> None:
    steps = WaitingExecutable()
    engine, _ = make(toy(executable=lambda: steps))
    handle = engine.submit("hi", SamplingParams(max_tokens=60), deadline_s=0.01)
    time.sleep(0.02)
    steps.let_go()
    assert handle.result(PATIENCE_S).finish_reason == "deadline"


def test_the_bound_of_waiting_requests_holds(make: Make) -> None:
    steps = WaitingExecutable()
    opened = toy(executable=lambda: steps, max_waiting=2, max_sequences=1)
    engine, _ = make(opened, settings=ServeSettings(max_waiting=2))
    handles = [engine.submit("hi") for _ in range(2)]
    until(lambda: engine.health().places == 0)
    with pytest.raises(BusyError, match="more requests would wait than may"):
        engine.submit("hi")
    steps.let_go()
    for handle in handles:
        handle.result(PATIENCE_S)
    until(lambda: engine.health().places == 2)


def test_closing_ends_what_runs(make: Make) -> None:
    steps = WaitingExecutable()
    engine, _ = make(toy(executable=lambda: steps))
    handle = engine.submit("hi", SamplingParams(max_tokens=60))
    close_meanwhile(engine.close, steps)
    with pytest.raises(EngineError) as it:
        handle.result(PATIENCE_S)
    assert isinstance(it.value.__cause__, EngineError)
    with pytest.raises(EngineError, match="not running any more"):
        engine.submit("hi")
    assert engine.health().state == "closed"
    engine.close()
    with pytest.raises(InputError, match="cannot be changed"):
        engine._worker.call(lambda core: None)


def close_meanwhile(close: Callable[[], None], steps: WaitingExecutable) -> None:
    """Close while a step goes on."""
    thread = threading.Thread(target=close)
    thread.start()
    steps.let_go()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_coroutines_are_served(make: Make) -> None:
    engine, _ = make()

    async def one(text: str) -> tuple[int, ...]:
        tokens: list[int] = []
        async for delta in await engine.asubmit(text, GREEDY):
            tokens += delta.token_ids
        return tuple(tokens)

    async def main() -> list[tuple[int, ...]]:
        return await asyncio.gather(*(one(text * 30) for text in "abcd"))

    with toy_engine() as alone:
        outputs = alone.generate([text * 30 for text in "abcd"], GREEDY)
    assert asyncio.run(main()) == [one.token_ids for one in outputs]


def test_answers_are_kept_here(make: Make) -> None:
    engine, replicas = make(settings=ServeSettings(answer_cache="1MiB"))
    first, again = (engine.generate(["hi"], GREEDY)[0] for _ in range(2))
    assert first.token_ids == again.token_ids
    assert len(replicas.sent) == 1
    assert engine.metrics().answer_hits == 1


def test_counts_of_a_replica_stay_when_it_is_gone(make: Make) -> None:
    engine, replicas = make()
    engine.generate([text * 40 for text in "abcdef"], GREEDY)
    until(lambda: sum(engine.metrics().finished.values()) == 6)
    before = engine.metrics()
    assert before.output_tokens == 72
    assert before.latencies.ttft.count == 6
    replicas.kill("r1")
    until(lambda: engine.metrics().total_blocks < before.total_blocks)
    after = engine.metrics()
    assert (after.output_tokens, after.finished) == (72, before.finished)
    assert (after.running, after.waiting) == (0, 0)
