"""``/metrics``, for Prometheus."""

from __future__ import annotations

from typing import cast

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response


async def metrics(request: Request) -> Response:
    """All metrics of now."""
    registry = cast(CollectorRegistry, request.app.state.registry)
    encode, kind = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), headers={"content-type": kind})
