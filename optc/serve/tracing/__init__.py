"""Spans of OpenTelemetry: a request of HTTP, and within it queue, prefill and decode."""
