"""`Service`: the models of a server, who may ask them, and how much runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from optc.errors import OptcError, RequestError
from optc.runtime.engine import Engine
from optc.runtime.handle import Handle
from optc.runtime.requests.generation_request import GenerationRequest
from optc.serve.answering.pace import Pace
from optc.serve.answering.streams import cancel_all
from optc.serve.api_errors import APIError, later
from optc.serve.asking.asked import Asked
from optc.serve.models import ModelTable
from optc.serve.objectives import Objectives
from optc.serve.published import Published
from optc.serve.receipts import Receipts, seeded
from optc.serve.semantic.cache import SemanticCache
from optc.serve.settings import HTTPSettings
from optc.system.logs.logger import logger
from optc.system.logs.named_once import NamedOnce

if TYPE_CHECKING:  # of the extra 'otel'
    from optc.serve.tracing.tracing import Tracing

_LOG = logger(__name__)


class Service:
    """The state that the routes of a server share.

    Args:
        models: Its models.
        settings: How it serves.
        receipts: Told of each request; None writes no receipts.
        tracing: Makes spans of each request; None makes none.

    Attributes:
        draining: It takes no more requests.
        objectives: Counts of the answers that met them.
        pace: How often streams send.
        published: How long clients of streams wait for the first bit to show.
        semantic: Answers of questions that mean the same; None keeps none.
        began_s: When the server began, on ``time.monotonic``.
    """

    def __init__(
        self,
        models: ModelTable,
        settings: HTTPSettings,
        receipts: Receipts | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.models = models
        self.settings = settings
        self.receipts = receipts
        self.tracing = tracing
        self.objectives = Objectives(settings.ttft_s, settings.itl_s)
        self.published = Published()
        self.pace = Pace(settings.pause_s)
        self.semantic: SemanticCache | None = None
        self.began_s = time.monotonic()
        self.draining = False
        self._preparing = 0
        self._unknown = NamedOnce()

    @property
    def state(self) -> Literal["draining", "loading", "busy", "ready"]:
        """The state of the server: it takes requests only where it is ready."""
        if self.draining:
            return "draining"
        if not self.models.loaded:
            return "loading"
        engines, tensors = self.models.engines.values(), self.models.tensors.values()
        takes = all(engine.health().ready for engine in engines)
        return "ready" if takes and all(one.queue.has_room for one in tensors) else "busy"

    def load(self) -> None:
        """Load all models, and measure what a semantic cache would get wrong.

        Raises:
            OptcError: One cannot be loaded, or the cache would get too much wrong.
        """
        self.models.load()
        if self.settings.semantic is not None:
            self.semantic = SemanticCache.of(self.models, *self.settings.semantic)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Around the reading and encoding of a request.

        Raises:
            APIError: The server takes no requests now.
        """
        self.check()
        if self._preparing >= self.settings.limits.preparing:
            raise later(429, "too many requests at once; ask again later", "rate_limit_exceeded")
        self._preparing += 1
        try:
            yield
        finally:
            self._preparing -= 1

    async def begin(self, asked: Asked, request_id: str = "") -> list[Handle]:
        """Hand all requests in, or none.

        Args:
            asked: The requests.
            request_id: For their receipts.

        Raises:
            APIError: There is no room.
            OptcError: One is wrong, or there is no room.
        """
        self._note_unknown(asked.unknown)
        engine = asked.model.engine
        places = engine.health().places
        if places is not None and places < len(asked.requests):  # before work that is for nothing
            raise later(429, "too many requests wait; ask again later", "rate_limit_exceeded")
        requests = asked.requests
        if self.receipts is not None:
            requests = tuple(map(seeded, requests))
        try:
            handles = await _submitted(engine, requests)
        except OptcError as error:
            raise (
                _about(asked.grammar_of, error) if asked.grammar_of else error
            ) from error.__cause__
        for handle in handles:
            self.objectives.watch(engine, handle)
            if self.tracing is not None:
                self.tracing.watch(handle)
        if self.receipts is not None:
            for handle, request in zip(handles, requests, strict=True):
                self.receipts.watch(handle, request, asked.model, request_id)
        return handles

    def check(self) -> None:
        """Refuse requests while the models are loaded and when the server stops.

        Raises:
            APIError: It does.
        """
        if self.draining:
            raise later(503, "the server is shutting down")
        if not self.models.loaded:
            raise later(503, "the models are being loaded")

    def _note_unknown(self, names: Sequence[str]) -> None:
        """Name fields once that change nothing."""
        for name in names:
            if (short := self._unknown.first(name)) is not None:
                _LOG.warning("requests have a field %r, which is ignored", short)


async def _submitted(engine: Engine, requests: Sequence[GenerationRequest]) -> list[Handle]:
    """All requests handed in, or none.

    Raises:
        OptcError: One is wrong.
    """
    if len(requests) == 1:  # most do: it needs no task of its own
        return [await engine.asubmit(requests[0])]
    begun = [asyncio.ensure_future(engine.asubmit(one)) for one in requests]
    try:
        results = await asyncio.gather(*begun, return_exceptions=True)
    except asyncio.CancelledError:
        _forget(begun)
        raise
    handles = [one for one in results if isinstance(one, Handle)]
    for one in results:
        if isinstance(one, BaseException):
            cancel_all(handles)
            raise one
    return handles


def _forget(begun: Sequence[asyncio.Future[Handle]]) -> None:
    """Cancel what was handed in meanwhile; what was not, its task cancels itself."""
    cancel_all(
        [
            one.result()
            for one in begun
            if one.done() and not one.cancelled() and not one.exception()
        ]
    )


def _about(field: str, error: OptcError) -> Exception:
    """An error about the grammar that was made of a field, which the client knows nothing of."""
    if isinstance(error, RequestError) and error.where.startswith("grammar"):
        return APIError(400, f"no grammar follows from {field}: {error.message}", field)
    return error
