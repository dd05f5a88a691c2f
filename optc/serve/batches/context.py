"""The store in a request's scope, if there is one."""

from __future__ import annotations

from typing import cast

from starlette.requests import Request

from optc.serve.api_errors import APIError
from optc.serve.batches.store import Store


def store_of(request: Request) -> Store:
    """The server's store.

    Raises:
        APIError: It has none.
    """
    found = cast("Store | None", request.app.state.store)
    if found is None:
        message = "the server keeps no files: it is to be started with --state FOLDER"
        raise APIError(404, message, None, "unsupported_route")
    return found
