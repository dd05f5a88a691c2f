"""Two engines measured in turns: the order of rounds, medians and ratios; no time is judged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from optc.proof.bench import interleaved
from optc.proof.bench.interleaved import METRICS, compare_speed
from optc.proof.bench.result import BenchResult
from optc.runtime.engine import Engine
from tests.runtime.support.toy import ToyExecutable, toy_spec


@pytest.fixture
def engines() -> Iterator[tuple[Engine, Engine]]:
    spec = toy_spec()
    with Engine(lambda: ToyExecutable(spec)) as a, Engine(lambda: ToyExecutable(spec)) as b:
        yield a, b


def result(prefill: float, decode: float | None, ttft: float) -> BenchResult:
    percentiles = {"p50": ttft, "p90": ttft, "p99": ttft}
    return BenchResult(2, 6, 4, prefill, decode, percentiles, dict.fromkeys(percentiles))


def test_both_run_the_same_rounds(engines: tuple[Engine, Engine]) -> None:
    a, b = engines
    found = compare_speed(a, b, prompt_tokens=6, output_tokens=4, concurrency=[1, 3], rounds=2)
    assert [(one.metric, one.concurrency) for one in found] == [
        (metric, count) for count in (1, 3) for metric in METRICS
    ]
    for one in found:
        assert one.a is not None
        assert one.ratio is not None
        assert one.low is not None
        assert one.high is not None
        assert one.a > 0
        assert one.low <= one.ratio <= one.high
    for engine in engines:  # a warm-up and two rounds of one request, and of three
        assert engine.metrics().finished == {"length": 3 + 9}
    assert a.metrics().output_tokens == b.metrics().output_tokens == 4 * 12


def test_they_take_turns_at_being_first(
    engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = engines
    order: list[str] = []
    prompts_of: list[list[list[int]]] = []

    def serve(engine: Engine, prompts: list[list[int]], params: object) -> list[str]:
        order.append("a" if engine is a else "b")
        prompts_of.append(prompts)
        return [order[-1]]

    rates = {"a": [10.0, 20.0, 40.0], "b": [30.0, 10.0, 20.0]}

    def figures(rounds: list[list[str]], *lengths: int) -> BenchResult:
        return result(rates[rounds[0][0]].pop(0), None, 5.0)

    monkeypatch.setattr(interleaved, "serve_round", serve)
    monkeypatch.setattr(interleaved, "result_of", figures)
    prefill, decode, ttft, _ = compare_speed(
        a, b, prompt_tokens=6, output_tokens=4, concurrency=[2], rounds=3
    )
    assert "".join(order) == "ba" + "ab" + "ba" + "ab"
    assert all(one == two for one, two in zip(prompts_of[::2], prompts_of[1::2], strict=True))
    assert [len(prompt) for prompt in prompts_of[0]] == [6, 6]
    # Ratios 3, 0.5 and 0.5: their median, not that of the medians.
    assert (prefill.a, prefill.b, prefill.ratio) == (20, 20, 0.5)
    assert (prefill.low, prefill.high) == (0.5, 3)
    assert (ttft.a, ttft.ratio) == (5, 1)
    assert (decode.a, decode.ratio) == (None, None)
