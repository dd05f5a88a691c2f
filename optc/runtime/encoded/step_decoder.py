"""A decoder that is an engine of ragged steps: requests of all callers run together, and each
begins as soon as there is room for it (continuous batching: Yu et al., 2022)."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from optc.errors import RequestError
from optc.runtime.encoded.places import Places
from optc.runtime.encoded.request import Decoding, Float32
from optc.runtime.executable.encoded import EncodedExecutable
from optc.runtime.executable.executable import Executable, StepBatch


class EncodedEngine(Executable, EncodedExecutable, Protocol):
    """An engine of ragged steps whose ``spec.encoded`` is not 0."""


class _Submitted(NamedTuple):
    """A request, the rows of its states, and where it goes when it ends."""

    request: Decoding
    states: list[Float32]
    ended: queue.SimpleQueue[Any]


@dataclass
class _Running:
    """A request that has begun.

    Attributes:
        request: The caller's.
        ended: Where it goes when it ends.
        place: Of its keys and values.
        states: Of the encoder.
        computed: Tokens whose keys and values are there.
        pending: Tokens to compute.
        heard: Place in ``pending`` from which on logits are wanted.
        logits: What was computed of them.
    """

    request: Decoding
    ended: queue.SimpleQueue[Any]
    place: int
    states: int
    pending: list[int]
    heard: int
    computed: int = 0
    logits: list[Float32] = field(default_factory=list)


class StepDecoder:
    """Runs requests on a thread of its own.

    Args:
        load: Gives the engine, on that thread, which its loops belong to.

    Raises:
        Exception: What ``load`` raised.
    """

    def __init__(self, load: Callable[[], EncodedEngine]) -> None:
        self._new: queue.SimpleQueue[_Submitted | None] = queue.SimpleQueue()
        self._closed = False
        self._lock = threading.RLock()
        self._waiting: deque[_Submitted] = deque()
        self._running: list[_Running] = []
        started: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        arguments = (load, started)
        self._thread = threading.Thread(
            target=self._work, args=arguments, name="optc-decoder", daemon=True
        )
        self._thread.start()
        error = started.get()
        if error is not None:
            raise error

    def session(self) -> StepSession:
        """For one caller."""
        return StepSession(self)

    def submit(self, request: Decoding, ended: queue.SimpleQueue[Any]) -> None:
        """Begin with a request as soon as there is room.

        Raises:
            RequestError: The engine is closed.
        """
        states = request.encoded.rows()  # copied by the caller, beside the steps of others
        with self._lock:
            if self._closed:
                raise closed()
            self._new.put(_Submitted(request, states, ended))

    def close(self) -> None:
        """Free the engine. Requests that run end with an error."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._new.put(None)
        self._thread.join()

    def _work(
        self,
        load: Callable[[], EncodedEngine],
        started: queue.SimpleQueue[BaseException | None],
    ) -> None:
        try:
            engine = load()
            places = Places.of(engine.spec)
            engine.allocate_kv(places.blocks, places.block_size)
        except BaseException as error:  # noqa: BLE001 - the thread that waits raises it
            started.put(error)
            return
        started.put(None)
        while self._take_new(wait=not self._running):
            self._admit(engine, places)
            try:
                self._advance(engine, places)
            except Exception as error:  # noqa: BLE001 - of a step: no request can go on
                for one in list(self._running):
                    self._end(one, places, error)
        left = [one.ended for one in self._running] + [one.ended for one in self._waiting]
        for ended in left:
            ended.put(closed())
        engine.close()

    def _take_new(self, *, wait: bool) -> bool:
        """Queue what was submitted; False once the engine is to be closed."""
        wait = wait and not self._waiting
        while wait or not self._new.empty():
            found = self._new.get()
            if found is None:
                return False
            self._waiting.append(found)
            wait = False
        return True

    def _admit(self, engine: EncodedEngine, places: Places) -> None:
        while self._waiting and places.free:
            request, states, ended = self._waiting.popleft()
            place = places.free.pop()
            try:
                count = len(states[0])
                places.check(count, len(request.prompt))
                engine.write_encoded(places.encoded_slots(place, count), states)
            except Exception as error:  # noqa: BLE001 - states of another model: its request's alone
                places.free.append(place)
                ended.put(error)
                continue
            prompt = list(request.prompt)
            self._running.append(_Running(request, ended, place, count, prompt, request.heard))

    def _advance(self, engine: EncodedEngine, places: Places) -> None:
        """One step of as many rows as there is room for, and what follows from its logits."""
        chosen = places.chosen([(len(one.pending), one.heard) for one in self._running])
        chunks = [(self._running[at], count) for at, count in chosen]
        if not chunks:
            return
        logits = engine.step(self._batch(chunks, places))
        place = 0
        for one, count in chunks:
            wanted = max(0, count - one.heard)
            one.logits.append(logits[place : place + wanted].copy())
            place += wanted
            one.heard = max(0, one.heard - count)
            one.computed += count
            del one.pending[:count]
        for one, _ in chunks:
            if not one.pending:
                self._go_on(one, places)

    def _batch(self, chunks: list[tuple[_Running, int]], places: Places) -> StepBatch:
        counts = np.array([count for _, count in chunks], np.int32)
        starts = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
        at = [
            np.arange(one.computed, one.computed + count, dtype=np.int32) for one, count in chunks
        ]
        tokens = [token for one, count in chunks for token in one.pending[:count]]
        slots = [places.slots(one.place, where) for (one, _), where in zip(chunks, at, strict=True)]
        wanted = [
            np.arange(start + min(one.heard, count), start + count)
            for (one, count), start in zip(chunks, starts, strict=False)
        ]
        rows = np.concatenate(wanted).astype(np.int32)
        own = np.concatenate(slots)
        lengths = [
            [one.computed + count for one, count in chunks],
            [one.states for one, _ in chunks],
        ]
        return StepBatch(
            tokens=np.array(tokens, np.int32),
            positions=np.concatenate(at).astype(np.int32),
            slot_mapping=np.stack([own, np.full_like(own, -1)]),
            query_starts=starts,
            kv_lengths=np.array(lengths, np.int32),
            block_tables=places.tables([one.place for one, _ in chunks]),
            # engines want the logits of a row at least
            logit_rows=rows if len(rows) else starts[-1:] - 1,
        )

    def _go_on(self, one: _Running, places: Places) -> None:
        logits, one.logits = np.concatenate(one.logits), []
        try:
            following = list(one.request.take(logits))
            if one.computed + len(following) > places.most_tokens:
                raise RequestError(
                    f"a text has {places.most_tokens} tokens at most", where="decoder"
                )
        except Exception as error:  # noqa: BLE001 - the caller's own, who gets it
            self._end(one, places, error)
            return
        if following:
            one.pending, one.heard = following, 0
        else:
            self._end(one, places)

    def _end(self, one: _Running, places: Places, error: Exception | None = None) -> None:
        self._running.remove(one)
        places.free.append(one.place)
        one.ended.put(one.request if error is None else error)


class StepSession:
    """Requests of one caller."""

    def __init__(self, decoder: StepDecoder) -> None:
        self._decoder = decoder
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def submit(self, requests: Iterable[Decoding]) -> None:
        """Begin with more requests."""
        for one in requests:
            self._decoder.submit(one, self._ended)

    def wait(self) -> Any:
        """The next request that has ended; see `Session.wait`."""
        found = self._ended.get()
        if isinstance(found, Exception):
            raise found
        return found


def closed() -> RequestError:
    """The error of who uses an engine that was closed."""
    return RequestError("the engine is closed", where="decoder", hint="load it again")
