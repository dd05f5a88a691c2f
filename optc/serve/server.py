"""`serve`: listens, loads, answers, and drains when it is told to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import uvicorn

from optc.errors import InputError
from optc.serve.app import make_app
from optc.serve.batches.runner import Runner
from optc.serve.batches.store import Store
from optc.serve.lines import STDOUT, LineWriter
from optc.serve.models import ModelTable
from optc.serve.receipts import Receipts
from optc.serve.service import Service
from optc.serve.settings import HTTPSettings
from optc.system.logs.logger import logger
from optc.system.needs import otel_packages

if TYPE_CHECKING:  # of the extra 'otel'
    from optc.serve.tracing.tracing import Tracing

_LOG = logger(__name__)
#: How often a draining server looks whether it is idle.
_LOOK_S = 0.05
#: Seconds that connections have to close once nothing runs any more.
_CLOSE_S = 5


def serve(
    models: ModelTable, settings: HTTPSettings, ready: Callable[[str], None] | None = None
) -> None:
    """Serve until SIGTERM or SIGINT; a second one does not wait for running requests.

    Args:
        models: To be loaded once the server listens: until then it answers with 503.
        settings: How it serves.
        ready: Told the address when all models are loaded.

    Raises:
        InputError: The address is not to be had.
        OptcError: A model cannot be loaded.
    """
    listener = _listener(settings)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_Server(models, settings, listener).run(ready))
    finally:
        listener.close()
        models.close()


class _Server:
    """One run of a server.

    Args:
        models: Of it.
        settings: How it serves.
        listener: Where it listens.
    """

    def __init__(self, models: ModelTable, settings: HTTPSettings, listener: socket.socket) -> None:
        settings = settings.named
        receipts = None
        if settings.receipts is not None:
            receipts = Receipts(settings.receipts, with_text=settings.receipts_text)
        self._service = Service(models, settings, receipts, _tracing(settings))
        self._store = None if settings.state is None else Store(settings.state)
        self._settings = settings
        self._listener = listener
        self._lines = LineWriter(STDOUT, "stdout") if settings.access_log else None
        config = uvicorn.Config(
            make_app(self._service, self._lines, self._store),
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=75,  # longer than most proxies keep theirs
            timeout_graceful_shutdown=_CLOSE_S,
            proxy_headers=False,
        )
        self._uvicorn = _Quiet(config)
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self, ready: Callable[[str], None] | None) -> None:
        """Serve until a signal."""
        with self._signals():
            serving = asyncio.create_task(self._uvicorn.serve([self._listener]))
            try:
                await self._load()
                if ready is not None and not self._stopping.is_set():
                    ready(self._address)
                async with self._batches():
                    await self._stopping.wait()
                await self._drain()
            finally:
                self._uvicorn.should_exit = True
                await serving
                await asyncio.to_thread(self._close)

    def _close(self) -> None:
        """Write what is left to be written."""
        if self._store is not None:
            self._store.close()
        if self._service.receipts is not None:
            self._service.receipts.close()
        if self._service.tracing is not None:
            self._service.tracing.close()
        if self._lines is not None:
            self._lines.close()

    async def _load(self) -> None:
        loading = asyncio.create_task(asyncio.to_thread(self._service.load))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await loading  # a load cannot be interrupted

    @asynccontextmanager
    async def _batches(self) -> AsyncIterator[None]:
        """Answer batches meanwhile. What is unfinished then goes on at the next start."""
        if self._store is None:
            yield
            return
        running = asyncio.create_task(Runner(self._service, self._store).run())
        running.add_done_callback(_log_failure)
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])

    async def _drain(self) -> None:
        """Take no more requests, and wait for those that run."""
        self._service.draining = True
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._settings.drain_s
        while self._uvicorn.busy and loop.time() < ends_s and not self._hurry.is_set():
            await asyncio.sleep(_LOOK_S)
        # Who still waits gets an error in OpenAI's form, not a broken connection.
        await asyncio.to_thread(self._service.models.close)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.getsignal(number) for number in numbers}
        for number in numbers:
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
                signal.signal(number, before[number])

    def _stop(self) -> None:
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    @property
    def _address(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class _Quiet(uvicorn.Server):
    """uvicorn without signal handlers of its own: it would stop listening at once, and raise the
    signal again at the end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing."""
        yield

    @property
    def busy(self) -> bool:
        """Some request has no whole answer."""
        return bool(self.server_state.tasks)


def _listener(settings: HTTPSettings) -> socket.socket:
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot listen at {settings.host}, port {settings.port}: {reason}",
            where="optc serve",
            hint="--host ADDRESS and --port N say where; port 0 is a free one",
        ) from error
    listener.setblocking(False)
    return listener


def _tracing(settings: HTTPSettings) -> Tracing | None:
    if not settings.traced:
        return None
    with otel_packages():
        from optc.serve.tracing.provider import make_provider
        from optc.serve.tracing.tracing import Tracing
    return Tracing(make_provider())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    import uvloop

    return uvloop.new_event_loop


def _log_failure(task: asyncio.Task[None]) -> None:
    """Say that batches are answered no more."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _LOG.error("batches are answered no more", exc_info=error)
