"""``/``, and ``/status``, from which the page draws."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from optc.runtime.engine import Engine
from optc.serve.context import service_of
from optc.serve.metrics import kv_use
from optc.serve.page.document import document, policy
from optc.serve.service import Service

#: Of histograms, in seconds: ten a decade, from 0.1 ms to 1,000 s.
BOUNDS = tuple(10 ** (power / 10) for power in range(-40, 31))
_LATENCIES = ("ttft_s", "itl_s", "e2e_s", "queue_s")
_COUNTERS = (
    "prompt_tokens",
    "output_tokens",
    "prefix_lookup_tokens",
    "prefix_hit_tokens",
    "drafted_tokens",
    "accepted_tokens",
    "finished",
    "running",
    "waiting",
)


async def page(request: Request) -> Response:
    """The page. It holds no figure: those need a key, if the server has any."""
    more = {
        "content-security-policy": policy(),
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "cache-control": "no-cache",
    }
    return HTMLResponse(document(), headers=more)


async def status(request: Request) -> Response:
    """Counters of now, of each model."""
    service = service_of(request)
    found = [_model(service, name, engine) for name, engine in service.models.engines.items()]
    values = {
        "version": version("optc"),
        "state": service.state,
        "now_s": time.monotonic(),
        "uptime_s": time.monotonic() - service.began_s,
        "models": found,
    }
    return JSONResponse(values)


def _model(service: Service, name: str, engine: Engine) -> dict[str, Any]:
    now = engine.metrics()
    histograms = now.latencies.histograms(BOUNDS)
    tokenizer = engine.tokenizer
    within, of = service.objectives.counted(engine)
    return {
        "name": name,
        **{field: getattr(now, field) for field in _COUNTERS},
        "kv_use": kv_use(now),
        "latencies": {field: histograms[field] for field in _LATENCIES},
        "objectives": service.objectives.to_json(),
        "within_objectives": within,
        "objective_requests": of,
        "chats": tokenizer is not None and bool(tokenizer.chat_template),
    }
