"""The service and the client in a request's scope."""

from __future__ import annotations

from typing import cast

from starlette.requests import Request

from optc.serve.asking.asked import Asker
from optc.serve.service import Service

#: Where the scope of a request keeps who asks.
ASKER = "optc.asker"


def service_of(request: Request) -> Service:
    """The server's."""
    return cast(Service, request.app.state.service)


def asker_of(request: Request) -> Asker:
    """The client that asks, as the guards have found."""
    return cast(Asker, request.scope.get(ASKER, Asker()))
