"""Spans leave the server as the variables of OpenTelemetry say."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx2
import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra 'otel' is not installed")
pytest.importorskip("opentelemetry.exporter.otlp", reason="the extra 'otel' is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from optc.errors import InputError
from optc.serve.tracing.provider import make_provider
from tests.runtime.support.artifacts import write_artifact
from tests.serve.processes import serving


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """The address of a collector, and what it has got."""
    got: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                data = gzip.decompress(data)
            assert self.path == "/v1/traces"
            got.append(ExportTraceServiceRequest.FromString(data))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    serving_ = threading.Thread(target=server.serve_forever)
    serving_.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        serving_.join()
        server.server_close()


def test_spans_reach_a_collector_before_the_server_ends(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "toy").path
    with collector() as (address, got):
        where = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_SERVICE_NAME": "mine"}
        with serving(artifact, "--otel", **where) as server:
            body = {"prompt": "hi", "max_tokens": 3}
            answer = httpx2.post(f"{server.url}/v1/completions", json=body)
            assert answer.status_code == 200
            server.terminate()
            assert server.ended()[0] == 0
    resources = [one for request in got for one in request.resource_spans]
    named = {
        (one.key, one.value.string_value) for each in resources for one in each.resource.attributes
    }
    assert ("service.name", "mine") in named
    names = [span.name for each in resources for scope in each.scope_spans for span in scope.spans]
    assert sorted(names) == ["POST /v1/completions", "decode", "prefill", "queue"]


def test_an_exporter_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp,made-up")
    with pytest.raises(InputError, match="'made-up' is no exporter of spans") as caught:
        make_provider()
    assert "otlp" in caught.value.hint


def test_none_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    provider = make_provider()
    assert provider._active_span_processor._span_processors == ()
    provider.shutdown()
