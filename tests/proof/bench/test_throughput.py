"""Bench figures: what is counted, not how fast this machine is."""

from __future__ import annotations

import pytest

from optc.errors import InputError, RequestError
from optc.proof.bench import throughput
from optc.proof.bench.result import result_json
from optc.proof.bench.throughput import bench, fit
from optc.runtime.engine import Engine
from optc.runtime.requests.request_metrics import RequestMetrics
from tests.runtime.support.toy import ToyExecutable, toy_spec


@pytest.fixture
def engine():
    with Engine(lambda: ToyExecutable(toy_spec())) as opened:
        yield opened


def test_results_have_the_contract_keys(engine: Engine) -> None:
    seen: list[tuple[int, int]] = []
    results = bench(
        engine,
        prompt_tokens=6,
        output_tokens=4,
        concurrency=[1, 3],
        rounds=2,
        progress=lambda stage, done, total: seen.append((done, total)),
    )
    assert [r.concurrency for r in results] == [1, 3]
    assert seen == [(0, 2), (1, 2), (2, 2)]
    found = result_json(results[1])
    assert (found["prompt_tokens"], found["output_tokens"]) == (6, 4)
    assert found["prefill_tokens_per_s"] > 0
    assert found["decode_tokens_per_s"] > 0
    for key in ("ttft_ms", "tpot_ms"):
        assert 0 < found[key]["p50"] <= found[key]["p90"] <= found[key]["p99"]
    assert found["mbu"] is found["mfu"] is None
    # One warm-up request, then two rounds of one and of three requests.
    assert engine.metrics().finished == {"length": 1 + 2 + 6}
    assert engine.metrics().output_tokens == 4 * 9


def test_one_output_token_has_no_decode(engine: Engine) -> None:
    (result,) = bench(engine, prompt_tokens=3, output_tokens=1, concurrency=[2], rounds=1)
    assert result.decode_tokens_per_s is None
    assert result.tpot_ms == {"p50": None, "p90": None, "p99": None}


def metrics(arrived: float, *times: float) -> RequestMetrics:
    return RequestMetrics(arrived, token_times_s=list(times))


def test_decode_counts_only_while_all_requests_decode() -> None:
    together = [metrics(0, 1.0, 2.0, 3.0, 4.0), metrics(0, 2.0, 2.5, 3.0, 5.0)]
    # From 2.0 (last first token) to 4.0 (first last token): 2 and 2 tokens.
    assert throughput._decode_rate(together) == pytest.approx(2.0)
    assert throughput._prefill_s(together) == 2.0


def test_decode_of_requests_that_never_overlap_counts_the_whole_time() -> None:
    apart = [metrics(0, 1.0, 2.0), metrics(0, 3.0, 5.0)]
    assert throughput._decode_rate(apart) == pytest.approx(3 / 4)


def test_fit_shortens_the_prompt() -> None:
    assert fit(512, 128, 4096) == (512, 128)
    assert fit(512, 128, 512) == (384, 128)
    with pytest.raises(InputError, match="128 output tokens leave no room for a prompt"):
        fit(512, 128, 128)
    with pytest.raises(InputError, match="at least one token each"):
        fit(0, 128, 512)


def test_wrong_counts_are_refused(engine: Engine) -> None:
    with pytest.raises(InputError, match="concurrency and rounds are at least 1"):
        bench(engine, prompt_tokens=3, output_tokens=1, concurrency=[0])
    with pytest.raises(RequestError, match="the context holds"):
        bench(engine, prompt_tokens=10**6, output_tokens=1, concurrency=[1])
