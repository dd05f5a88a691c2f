"""``/v1/models``: what there is to ask."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from optc.serve.context import service_of


async def list_models(request: Request) -> Response:
    """All models and adapters that are loaded."""
    models = service_of(request).models.listed
    return JSONResponse({"object": "list", "data": [one.to_json() for one in models]})


async def one_model(request: Request) -> Response:
    """One of them."""
    return JSONResponse(service_of(request).models.any(request.path_params["name"]).to_json())
