"""`Tracing`: makes the spans of requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from opentelemetry import context, propagate
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_current_span
from opentelemetry.trace import set_span_in_context as within

from optc.errors import OptcError
from optc.runtime.handle import Handle
from optc.runtime.requests.request_metrics import RequestMetrics

#: Names of attributes: https://opentelemetry.io/docs/specs/semconv/ (HTTP, generative AI).
_METHOD, _ROUTE, _STATUS = "http.request.method", "http.route", "http.response.status_code"
_MODEL = "gen_ai.request.model"
_READ, _WRITTEN = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"


class Tracing:
    """Makes spans.

    Args:
        provider: Where they go.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("optc.serve")

    def begin(self, method: str, headers: Mapping[str, str]) -> Span:
        """The span of a request of HTTP, in the trace that ``traceparent`` names.

        Args:
            method: Of HTTP.
            headers: Of the request.
        """
        parent = propagate.extract(headers)
        attributes = {_METHOD: method}
        return self._tracer.start_span(method, parent, SpanKind.SERVER, attributes)

    def end(self, span: Span, method: str, route: str, status: int, facts: dict[str, Any]) -> None:
        """End the span of a request of HTTP.

        Args:
            span: Of `begin`.
            method: Of HTTP.
            route: Its pattern; empty where there is none.
            status: Of the answer.
            facts: Of the access log: the model and numbers of tokens.
        """
        if route:
            span.update_name(f"{method} {route}")
            span.set_attribute(_ROUTE, route)
        span.set_attribute(_STATUS, status)
        named = {"model": _MODEL, "prompt_tokens": _READ, "completion_tokens": _WRITTEN}
        for fact, attribute in named.items():
            if fact in facts:
                span.set_attribute(attribute, facts[fact])
        if max(status, facts.get("error", 0)) >= 500:  # the latter was told in a stream
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def watch(self, handle: Handle) -> None:
        """Make the spans of a request of the runtime once it has ended, within the present one;
        called on an event loop, which makes them. Without a recorded span there are none."""
        span = get_current_span()
        if not span.is_recording():
            return
        loop, parent = asyncio.get_running_loop(), within(span)

        def hand_over(ended: Handle) -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it the server
                loop.call_soon_threadsafe(self._make, ended, parent)

        handle.add_done_callback(hand_over)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def _make(self, handle: Handle, parent: context.Context) -> None:
        try:
            output = handle.result(0)
        except OptcError:  # the engine failed, which the span of HTTP says
            return
        shift_ns = time.time_ns() - time.perf_counter_ns()
        for one in output.completions:
            attributes = {"optc.choice": one.index, "optc.finish_reason": one.finish_reason}
            counts = {
                "queue": {},
                "prefill": {
                    _READ: output.prompt_tokens,
                    "optc.cached_tokens": one.metrics.cached_tokens,
                },
                "decode": {_WRITTEN: len(one.token_ids)},
            }
            for name, begin_s, end_s in phases(one.metrics):
                span = self._tracer.start_span(
                    name,
                    parent,
                    attributes={**attributes, **counts[name]},
                    start_time=shift_ns + round(begin_s * 1e9),
                )
                span.end(shift_ns + round(end_s * 1e9))


def phases(one: RequestMetrics) -> list[tuple[str, float, float]]:
    """``queue``, ``prefill`` and ``decode`` of a text that has ended, with their times; those that
    it has reached."""
    marks = [one.arrived_s, one.scheduled_s, next(iter(one.token_times_s), None)]
    names = ("queue", "prefill", "decode")
    begun = [(name, at) for name, at in zip(names, marks, strict=True) if at is not None]
    if one.finished_s is None:
        return []
    ends = [*(at for _, at in begun[1:]), one.finished_s]
    return [(name, at, end) for (name, at), end in zip(begun, ends, strict=True)]
