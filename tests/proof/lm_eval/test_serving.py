from __future__ import annotations

from collections.abc import Iterator

import pytest

from optc.errors import RequestError
from optc.proof.lm_eval.serving import served
from optc.runtime.engine import Engine
from optc.runtime.params import SamplingParams
from optc.runtime.requests.generation_request import GenerationRequest
from tests.runtime.support.toy import ToyExecutable, toy_spec

GREEDY = SamplingParams(temperature=0, max_tokens=3)


def test_results_come_in_order_and_requests_are_made_as_they_are_needed() -> None:
    made: list[int] = []

    def requests(count: int) -> Iterator[GenerationRequest]:
        for number in range(count):
            made.append(number)
            yield GenerationRequest([1 + number % 9, 2], GREEDY)

    with Engine(lambda: ToyExecutable(toy_spec(max_sequences=2))) as engine:
        expected = engine.generate([[1 + number % 9, 2] for number in range(40)], GREEDY)
        outputs = served(engine, requests(40))
        found = [next(outputs)]
        assert len(made) == 9, "four times as many as run, and one"
        found += outputs
    assert [one.token_ids for one in found] == [one.token_ids for one in expected]


def test_what_was_begun_is_cancelled_where_a_request_is_wrong() -> None:
    with Engine(lambda: ToyExecutable(toy_spec(max_context=4096))) as engine:
        wrong = [GenerationRequest([1], SamplingParams(max_tokens=4000)), GenerationRequest([])]
        with pytest.raises(RequestError, match="the prompt is empty"):
            list(served(engine, wrong))
        engine.generate([[1]], GREEDY)
        assert engine.metrics().running == 0
