"""``/health``, ``/ready``, ``/load`` and ``/version``: what machines ask."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from optc.serve.api_errors import RETRY_S
from optc.serve.context import service_of


async def health(request: Request) -> Response:
    """200 while the process is worth keeping, 503 once an engine has failed."""
    engines = service_of(request).models.engines.values()
    failed = any(not engine.health().alive for engine in engines)
    return JSONResponse({"status": "failed" if failed else "ok"}, 503 if failed else 200)


async def ready(request: Request) -> Response:
    """200 while requests are taken, 503 while models are loaded, the server drains, or its queue is
    full."""
    state = service_of(request).state
    if state != "ready":
        return JSONResponse({"status": state}, 503, {"retry-after": str(RETRY_S)})
    return JSONResponse({"status": state})


async def load(request: Request) -> Response:
    """The number of requests that run and that wait."""
    models = service_of(request).models
    states = [engine.health() for engine in models.engines.values()]
    queues = [one.queue for one in models.tensors.values()]
    counts = [(one.running, one.waiting) for one in states]
    counts += [(one.running, one.waiting) for one in queues]
    running, waiting = (sum(side) for side in zip(*counts, strict=True)) if counts else (0, 0)
    return JSONResponse({"server_load": running + waiting, "running": running, "waiting": waiting})


async def version(request: Request) -> Response:
    """Of optc."""
    from importlib.metadata import version as version_of

    return JSONResponse({"version": version_of("optc")})
