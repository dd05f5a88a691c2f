"""Routes of OpenAI's API that are known and cannot be served."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from optc.serve.api_errors import APIError

#: What each needs.
REASONS = {
    "/v1/responses/compact": "send the conversation as input instead",
    "/v1/moderations": "no model here knows OpenAI's categories; ask /v1/classify",
    "/v1/audio/speech": "the models here write texts",
    "/v1/images/generations": "the models here write texts",
}


async def unsupported(request: Request) -> Response:
    """The kind of model that a route would need.

    Raises:
        APIError: Always.
    """
    path = request.url.path
    raise APIError(404, f"{path} is not served: {REASONS[path]}", None, "unsupported_route")
