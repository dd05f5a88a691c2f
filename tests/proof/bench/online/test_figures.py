"""The figures of a load, by hand."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the extra 'serve' is not installed")

from optc.proof.bench.online.ask import Answer, Failure
from optc.proof.bench.online.figures import NoAnswerError, errors_by_kind, figures, uncounted
from optc.proof.bench.online.load import Load
from optc.proof.bench.online.stream_times import StreamTimes
from optc.proof.bench.slo import Slo


def answer(first_s: float, end_s: float, tokens: int = 5, counted: bool = True) -> Answer:
    times = StreamTimes(0.0, token_times_s=[first_s, end_s], finished_s=end_s, tokens=tokens)
    return Answer(times, 10, counted)


def failed(kind: str, message: str = "no", end_s: float = 1.0) -> Answer:
    return Answer(StreamTimes(0.0, finished_s=end_s), failure=Failure(kind, message))


def test_rates_latencies_and_errors() -> None:
    load = Load([answer(0.2, 1.0), answer(0.4, 2.0, 9), failed("timeout", end_s=4.0)], 0.0, 3.0)
    found = figures(load, price_per_hour=3600.0)
    assert (found["requests"], found["failed"], found["seconds"]) == (2, 1, 4.0)
    assert (found["offered_per_s"], found["requests_per_s"]) == (3.0, 0.5)
    assert (found["input_tokens"], found["output_tokens_per_s"]) == (20, 3.5)
    assert found["ttft_ms"]["mean"] == pytest.approx(300)
    assert found["tpot_ms"]["mean"] == pytest.approx(200)
    assert found["e2e_ms"]["mean"] == pytest.approx(1500)
    assert "queue_ms" not in found
    assert found["goodput"] is None
    assert found["cost"]["per_million_output_tokens"] == pytest.approx(4e6 / 14)


def test_goodput_counts_failed_requests_as_late() -> None:
    load = Load([answer(0.2, 1.0), answer(0.4, 1.0), failed("cut"), failed("cut")], 0.0)
    slo = Slo(ttft=0.3)
    expected = {"slo": slo.to_json(), "share": 0.25, "requests_per_s": 1.0}
    assert figures(load, slo=slo)["goodput"] == expected


def test_errors_by_kind() -> None:
    given = [Failure("cut", "a"), Failure("status 429", "b"), Failure("status 429", "c")]
    assert errors_by_kind(given) == [
        {"kind": "status 429", "count": 2, "message": "b"},
        {"kind": "cut", "count": 1, "message": "a"},
    ]


def test_without_an_answer() -> None:
    load = Load([failed("connect")], 0.0)
    found: dict[str, Any] = figures(load, slo=Slo(ttft=1.0), price_per_hour=1.0)
    assert (found["ttft_ms"]["p50"], found["cost"], found["goodput"]["share"]) == (None, None, 0.0)
    error = NoAnswerError("http://x", [Failure("connect", "refused"), Failure("cut", "")], {"a": 1})
    assert error.exit_code == 3
    assert error.render() == ("http://x: all 2 requests failed; the first one: connect: refused")


def test_a_server_that_does_not_count() -> None:
    assert uncounted([answer(1, 2), failed("cut")]) == []
    assert "a chunk counts as one" in uncounted([answer(1, 2), answer(1, 2, counted=False)])[0]
