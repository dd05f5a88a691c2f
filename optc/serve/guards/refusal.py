"""Answers that say what is wrong."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from optc.errors import OptcError
from optc.serve.api_errors import APIError, of_error
from optc.serve.guards.access_log import CLIENT_LEFT, FACTS
from optc.serve.messages.errors import error_json

#: Routes whose clients know errors in Anthropic's form.
_ANTHROPIC = "/v1/messages"


def refusal(error: APIError, scope: Scope) -> JSONResponse:
    """The answer of an error to the request of a scope."""
    if scope["path"].startswith(_ANTHROPIC):
        body = error_json(error, scope[FACTS]["request_id"])
    else:
        body = error.to_json()
    return JSONResponse(body, error.status, dict(error.headers))


async def on_api_error(request: Request, error: Exception) -> Response:
    """The answer of an `APIError`."""
    assert isinstance(error, APIError)
    return refusal(error, request.scope)


async def on_optc_error(request: Request, error: Exception) -> Response:
    """The answer of an error of the runtime."""
    assert isinstance(error, OptcError)
    return refusal(of_error(error), request.scope)


async def on_http_error(request: Request, error: Exception) -> Response:
    """The answer to a path or method that there is not."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:256]
    message = {
        404: f"there is no route {path!r}",
        405: f"{path!r} takes no {request.method}",
    }.get(error.status_code, error.detail)
    told = APIError(error.status_code, message, headers=error.headers or {})
    return refusal(told, request.scope)


async def on_left(request: Request, error: Exception) -> Response:
    """Nobody reads this answer; the log has its status."""
    return Response(status_code=CLIENT_LEFT)


async def on_bug(request: Request, error: Exception) -> Response:
    """The answer of an exception that is none of optc's own. Starlette raises it again, so that
    the log of uvicorn has its traceback."""
    told = APIError(500, "internal error; the server's log has the traceback")
    return refusal(told, request.scope)
