"""Answers are kept where they would be the same again, and given to nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from optc.errors import EngineError, InputError
from optc.runtime.engine import Engine
from optc.runtime.outputs import RequestOutput
from optc.runtime.params import SamplingParams
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.settings import ServeSettings
from tests.runtime.adapters.test_peft import SPEC as ADAPTERS
from tests.runtime.adapters.test_peft import saved
from tests.runtime.support.toy import ToyExecutable
from tests.serve.toys import SPEC, AdaptedExecutable, tokenizer

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 6}
PROMPT = [5, 6, 7]


def engine(executable: ToyExecutable, size: str | int = "1MiB", **changes: Any) -> Engine:
    settings = ServeSettings(kv_memory="1MiB", answer_cache=size, **changes)
    return Engine(lambda: executable, settings, tokenizer=tokenizer(), eos_token_ids=(1,))


@pytest.fixture
def toy() -> ToyExecutable:
    return ToyExecutable(SPEC)


@pytest.fixture
def cached(toy: ToyExecutable) -> Iterator[Engine]:
    with engine(toy) as made:
        yield made


def plain(output: RequestOutput) -> list[Any]:
    """All but its times."""
    return [replaced(one, metrics=RequestMetrics(0)) for one in output.completions]


@pytest.mark.parametrize(
    "params",
    [
        GREEDY,
        {"temperature": 1, "seed": 3, "n": 3, "max_tokens": 5, "logprobs": 2},
        {"beam_width": 2, "max_tokens": 4},
        {**GREEDY, "stop": ["a"], "logit_bias": {7: 2.0}},
    ],
)
def test_what_comes_again_is_not_computed_and_is_the_same(
    cached: Engine, toy: ToyExecutable, params: dict[str, Any]
) -> None:
    (first,) = cached.generate([PROMPT], SamplingParams(**params))
    steps = len(toy.batches)
    (again,) = cached.generate([PROMPT], SamplingParams(**params))
    assert len(toy.batches) == steps
    assert plain(again) == plain(first)
    assert again.prompt_token_ids == first.prompt_token_ids
    assert again.completions[0].metrics.cached_tokens == len(PROMPT)
    metrics = cached.metrics()
    assert (metrics.answer_lookups, metrics.answer_hits) == (2, 1)
    assert sum(metrics.finished.values()) == len(first.completions)


def test_streams_and_coroutines_get_it_too(cached: Engine, toy: ToyExecutable) -> None:
    params = SamplingParams(**GREEDY)
    (first,) = cached.generate([PROMPT], params)
    steps = len(toy.batches)
    deltas = list(cached.submit(PROMPT, params))
    assert "".join(one.text for one in deltas) == first.text
    assert deltas[-1].finish_reason == first.finish_reason

    async def streamed() -> tuple[int, ...]:
        found = [one async for one in cached.stream(PROMPT, params)]
        handle = await cached.asubmit(PROMPT, params)
        assert plain(await handle) == plain(first)
        return sum((one.token_ids for one in found), ())

    assert asyncio.run(streamed()) == first.token_ids
    assert len(toy.batches) == steps


@pytest.mark.parametrize(
    ("params", "terms"),
    [
        ({**GREEDY, "max_tokens": 7}, {}),
        ({**GREEDY, "stop": "x"}, {}),
        ({**GREEDY, "logprobs": 1}, {}),
        ({"temperature": 0.5, "seed": 1, "max_tokens": 6}, {}),
        (GREEDY, {"salt": "another"}),
    ],
)
def test_another_request_has_another_answer(
    cached: Engine, params: dict[str, Any], terms: dict[str, Any]
) -> None:
    cached.generate([PROMPT], SamplingParams(**GREEDY))
    cached.generate([PROMPT], SamplingParams(**params), **terms)
    cached.generate([[*PROMPT, 8]], SamplingParams(**GREEDY))
    assert cached.metrics().answer_hits == 0
    cached.generate([PROMPT], SamplingParams(**GREEDY), priority=3, deadline_s=1000)
    assert cached.metrics().answer_hits == 1  # these change no token


def test_what_would_not_be_the_same_is_not_kept(cached: Engine) -> None:
    for _ in range(2):
        cached.generate([PROMPT], SamplingParams(temperature=1, max_tokens=3))
        cached.generate([PROMPT], SamplingParams(**GREEDY, prompt_logprobs=1))
        handle = cached.submit(PROMPT, SamplingParams(temperature=0, max_tokens=400))
        handle.cancel()
        assert handle.result().finish_reason == "cancelled"
    assert cached.metrics().answer_hits == 0


def test_memory_is_bounded_and_the_oldest_goes_first(toy: ToyExecutable) -> None:
    params = SamplingParams(**GREEDY)
    with engine(toy, 4 << 10) as small:  # three answers
        for first in (10, 11, 12, 10, 13):
            small.generate([[first]], params)
        assert small.metrics().answer_hits == 1
        for first, hits in ((10, 2), (12, 3), (11, 3)):
            small.generate([[first]], params)
            assert small.metrics().answer_hits == hits
        cache = small._answers
        assert cache is not None
        assert cache._size == sum(one.size for one in cache._kept.values()) <= 4 << 10
        small.generate([[10]], SamplingParams(temperature=0, max_tokens=300, ignore_eos=True))
        assert len(cache._kept) == 3  # an answer that does not fit drops no others


def test_an_adapter_of_the_same_name_is_another_one(tmp_path: Path) -> None:
    executable = AdaptedExecutable(replace(SPEC, adapters=ADAPTERS))
    params = SamplingParams(**GREEDY)
    with engine(executable) as adapted:
        base = adapted.generate([PROMPT], params)
        adapted.load_adapter("sql", saved(tmp_path))
        first = adapted.generate([PROMPT], params, adapter="sql")
        assert plain(first[0]) != plain(base[0])
        adapted.generate([PROMPT], params, adapter="sql")
        assert adapted.metrics().answer_hits == 1
        adapted.unload_adapter("sql")  # nobody holds it any more
        adapted.load_adapter("other", tmp_path)  # takes its slot
        adapted.load_adapter("sql", tmp_path)
        adapted.generate([PROMPT], params, adapter="sql")
        assert adapted.metrics().answer_hits == 1
        adapted.generate([PROMPT], params)
        assert adapted.metrics().answer_hits == 2


def test_engines_whose_answers_depend_on_the_batch_keep_none() -> None:
    executable = ToyExecutable(replace(SPEC, batch_invariant=False))
    with engine(executable) as made:
        for _ in range(2):
            made.generate([PROMPT], SamplingParams(**GREEDY))
        assert (made.metrics().answer_lookups, made.metrics().answer_hits) == (0, 0)


def test_a_closed_engine_answers_nothing(toy: ToyExecutable) -> None:
    made = engine(toy)
    made.generate([PROMPT], SamplingParams(**GREEDY))
    made.close()
    with pytest.raises(EngineError):
        made.generate([PROMPT], SamplingParams(**GREEDY))


@pytest.mark.parametrize("size", ["much", 3])
def test_a_size_that_is_none(size: str | int) -> None:
    with pytest.raises(InputError, match="answer_cache"):
        ServeSettings(answer_cache=size)
