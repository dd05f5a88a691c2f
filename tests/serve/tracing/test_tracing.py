"""Spans of requests, in the traces of their clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra 'otel' is not installed")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id
from starlette.testclient import TestClient

from optc.runtime.engine import Engine
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.serve.app import make_app
from optc.serve.models import ModelSource, ModelTable
from optc.serve.service import Service
from optc.serve.settings import HTTPSettings
from optc.serve.tracing.tracing import Tracing, phases
from tests.serve.toys import FailingExecutable, toy_engine

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GIVEN = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
BODY = {"prompt": "hi", "max_tokens": 5, "ignore_eos": True}


class Traced:
    """A server whose spans are kept."""

    def __init__(self, engine: Engine) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.table = ModelTable([ModelSource("toy", lambda: engine)])
        self.table.load()
        service = Service(self.table, HTTPSettings(), tracing=Tracing(provider))
        self.http = TestClient(make_app(service), raise_server_exceptions=False)
        self.http.__enter__()  # one event loop for all requests

    def spans(self, count: int) -> list[ReadableSpan]:
        """So many spans, once they are there."""
        while len(self.exporter.get_finished_spans()) < count:
            self.http.get("/health")  # the loop makes them
        return list(self.exporter.get_finished_spans())

    def close(self) -> None:
        self.http.__exit__(None, None, None)
        self.table.close()


@pytest.fixture
def traced() -> Iterator[Traced]:
    found = Traced(toy_engine())
    yield found
    found.close()


def by_name(spans: list[ReadableSpan]) -> dict[str, ReadableSpan]:
    found = {span.name: span for span in spans}
    assert len(found) == len(spans)
    return found


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_continues_its_clients_trace(traced: Traced, stream: bool) -> None:
    answer = traced.http.post("/v1/completions", json={**BODY, "stream": stream}, headers=GIVEN)
    assert answer.status_code == 200
    found = by_name(traced.spans(4))
    http = found["POST /v1/completions"]
    assert http.kind is SpanKind.SERVER
    assert http.parent is not None
    assert format_span_id(http.parent.span_id) == PARENT
    for span in found.values():
        assert format_trace_id(span.context.trace_id) == TRACE
    attributes = dict(http.attributes or {})
    assert attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/completions",
        "http.response.status_code": 200,
        "gen_ai.request.model": "toy",
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.output_tokens": 5,
    }
    phases_ = [found[name] for name in ("queue", "prefill", "decode")]
    times: list[Any] = [(one.start_time, one.end_time) for one in phases_]
    assert all(one.parent and one.parent.span_id == http.context.span_id for one in phases_)
    assert all(begin <= end for begin, end in times)
    assert times[0][1] == times[1][0]
    assert times[1][1] == times[2][0]
    assert http.start_time is not None
    assert http.end_time is not None
    assert http.start_time <= times[0][0] + 1_000_000, "clocks differ by less than a millisecond"
    assert times[2][1] <= http.end_time + 1_000_000
    assert dict(found["decode"].attributes or {})["gen_ai.usage.output_tokens"] == 5


def test_without_a_parent_there_is_a_trace_of_its_own(traced: Traced) -> None:
    traced.http.post("/v1/completions", json={**BODY, "n": 2})
    spans = traced.spans(7)
    http = next(one for one in spans if one.parent is None)
    assert http.name == "POST /v1/completions"
    assert sorted(one.name for one in spans if one is not http) == sorted(
        ["queue", "prefill", "decode"] * 2
    )
    choices = {dict(one.attributes or {}).get("optc.choice") for one in spans if one is not http}
    assert choices == {0, 1}


def test_a_trace_that_is_not_sampled_has_no_spans(traced: Traced) -> None:
    unsampled = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    assert traced.http.post("/v1/completions", json=BODY, headers=unsampled).status_code == 200
    traced.http.get("/v1/models")
    assert [one.name for one in traced.spans(1)] == ["GET /v1/models"]


def test_probes_have_none_and_refusals_have_no_phases(traced: Traced) -> None:
    for path in ("/health", "/ready", "/metrics", "/load", "/status"):
        traced.http.get(path)
    traced.http.post("/v1/completions", json={"prompt": 1})
    traced.http.get("/made/up")
    first, second = traced.spans(2)
    assert (first.name, second.name) == ("POST /v1/completions", "GET")
    assert dict(first.attributes or {})["http.response.status_code"] == 400
    assert first.status.status_code is StatusCode.UNSET, "the client's fault is no error here"


@pytest.mark.parametrize("header", ["", "00-zz-1-01", "x" * 5000])
def test_what_is_no_traceparent_begins_a_trace(traced: Traced, header: str) -> None:
    traced.http.get("/v1/models", headers={"traceparent": header})
    (span,) = traced.spans(1)
    assert span.parent is None


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_of_the_engine_is_an_error(stream: bool) -> None:
    traced = Traced(toy_engine(lambda: FailingExecutable(2)))
    try:
        traced.http.post("/v1/completions", json={**BODY, "stream": stream})
        (span,) = traced.spans(1)
        assert span.status.status_code is StatusCode.ERROR
    finally:
        traced.close()


@pytest.mark.parametrize(
    ("metrics", "wanted"),
    [
        (
            RequestMetrics(1.0, 2.0, [3.0, 4.0], 5.0),
            [("queue", 1.0, 2.0), ("prefill", 2.0, 3.0), ("decode", 3.0, 5.0)],
        ),
        (RequestMetrics(1.0, 2.0, [], 5.0), [("queue", 1.0, 2.0), ("prefill", 2.0, 5.0)]),
        (RequestMetrics(1.0, None, [], 5.0), [("queue", 1.0, 5.0)]),
        (RequestMetrics(1.0), []),
    ],
)
def test_phases(metrics: RequestMetrics, wanted: list[tuple[str, float, float]]) -> None:
    assert phases(metrics) == wanted
