"""Metrics as Prometheus reads them."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from optc.errors import InputError
from optc.serve.metrics import check_prefix
from optc.serve.settings import HTTPSettings
from tests.serve.conftest import Api, MakeApi
from tests.serve.toys import toy_engine

#: Read by vLLM's boards and by the Gateway API's endpoint picker.
NAMES = {
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "prompt_tokens_total",
    "generation_tokens_total",
    "request_success_total",
    "num_preemptions_total",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "time_to_first_token_seconds_bucket",
    "inter_token_latency_seconds_bucket",
    "e2e_request_latency_seconds_bucket",
    "request_queue_time_seconds_sum",
    "cache_config_info",
    "http_requests_total",
}


def samples(api: Api) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Values by the name of the sample."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(api.http.get("/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.mark.parametrize("prefix", ["optc", "vllm"])
def test_names_and_values(make_api: MakeApi, prefix: str) -> None:
    api = make_api({"one": toy_engine(), "two": toy_engine()}, HTTPSettings(metrics_prefix=prefix))
    body = {"prompt": "hi", "max_tokens": 5, "ignore_eos": True, "model": "two"}
    api.post("/v1/completions", **body)
    api.error("/v1/completions", **{**body, "n": 0})
    api.http.get("/made-up-by-a-client")
    found = samples(api)
    assert {f"{prefix}:{name}" for name in NAMES} <= found.keys()

    def value(name: str, **labels: str) -> float:
        (one,) = [
            value for given, value in found[f"{prefix}:{name}"] if labels.items() <= given.items()
        ]
        return one

    assert value("generation_tokens_total", model_name="two") == 5
    assert value("generation_tokens_total", model_name="one") == 0
    assert value("request_success_total", model_name="two", finished_reason="length") == 1
    assert value("time_to_first_token_seconds_count", model_name="two") == 1
    assert value("inter_token_latency_seconds_bucket", model_name="two", le="+Inf") == 4
    assert value("http_requests_total", route="/v1/completions", status="200") == 1
    assert value("http_requests_total", route="/v1/completions", status="400") == 1
    assert value("http_requests_total", route="other", status="404") == 1
    assert "made-up" not in api.http.get("/metrics").text


def test_histograms_only_grow(api: Api) -> None:
    def counts() -> list[float]:
        return [value for _, value in samples(api)["optc:e2e_request_latency_seconds_bucket"]]

    before = counts()
    api.post("/v1/completions", prompt="hi", max_tokens=3)
    after = counts()
    assert after == sorted(after)
    assert all(new >= old for new, old in zip(after, before, strict=True))
    assert after[-1] == before[-1] + 1


@pytest.mark.parametrize("prefix", ["", "1a", "a b", "a:b", "é"])
def test_prefixes_that_are_none(prefix: str) -> None:
    with pytest.raises(InputError, match="no beginning of a metric's name"):
        check_prefix(prefix)
