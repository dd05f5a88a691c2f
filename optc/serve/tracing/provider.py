"""`make_provider`: where spans go, by the variables that all of OpenTelemetry's programs obey.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

import os
from importlib.metadata import entry_points, version

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from optc.errors import InputError

_EXPORTERS = "OTEL_TRACES_EXPORTER"
_GROUP = "opentelemetry_traces_exporter"
#: Names of the specification, and those of the entry points of Python's packages.
_NAMES = {"otlp": "otlp_proto_http"}


def make_provider() -> TracerProvider:
    """A provider with the exporters of ``OTEL_TRACES_EXPORTER`` (``otlp`` over HTTP where it says
    nothing). Exporters, the sampler and the resource read their own variables.

    Raises:
        InputError: There is no exporter of that name.
    """
    values = {SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME", "optc")}
    resource = Resource.create({SERVICE_VERSION: version("optc"), **values})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    names = [name.strip() for name in os.environ.get(_EXPORTERS, "otlp").split(",")]
    for name in filter(None, names):
        if name != "none":
            provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    return provider


def _exporter(name: str) -> SpanExporter:
    found = entry_points(group=_GROUP)
    chosen = [one for one in found if one.name == _NAMES.get(name, name)]
    if not chosen:
        names = ", ".join(sorted({"none", *_NAMES, *(one.name for one in found)}))
        raise InputError(f"{name!r} is no exporter of spans", where=_EXPORTERS, hint=names)
    exporter: SpanExporter = chosen[0].load()()
    return exporter
