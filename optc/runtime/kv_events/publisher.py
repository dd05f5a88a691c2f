"""`Publisher`: sends batches of events by ZeroMQ, and again to who missed some."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from optc.errors import InputError
from optc.runtime.kv_events.events import EventBatch

if TYPE_CHECKING:
    import zmq

#: Batches that can be sent again.
_KEPT = 10_000
#: Milliseconds until the thread looks for new batches while nobody asks for old ones.
_LOOK_MS = 20
#: Number of the message that ends what is sent again.
_END = (-1).to_bytes(8, "big", signed=True)


@dataclass(frozen=True)
class Endpoints:
    """The addresses and the topic of events.

    Attributes:
        publish: Address of ZeroMQ that the publishing socket binds, such as ``tcp://*:5557``.
        replay: Of the socket that sends batches again; empty is none.
        topic: First frame of each message.
    """

    publish: str
    replay: str = ""
    topic: str = ""


def parse_endpoints(text: str) -> Endpoints:
    """Endpoints from ``ADDRESS[,replay=ADDRESS][,topic=TEXT]``.

    Raises:
        InputError: It is something else.
    """
    first, *rest = text.split(",")
    named = dict(part.partition("=")[::2] for part in rest)
    addresses = (first, *(named[key] for key in ("replay",) if key in named))
    if named.keys() - {"replay", "topic"} or not all("://" in one for one in addresses):
        raise InputError(
            f"{text!r} is no address for events",
            where="kv_events",
            hint="ADDRESS[,replay=ADDRESS][,topic=TEXT], such as tcp://*:5557,replay=tcp://*:5558",
        )
    return Endpoints(first, named.get("replay", ""), named.get("topic", ""))


class Publisher:
    """Publishes from a thread of its own, which nobody waits for.

    Args:
        endpoints: Where.

    Raises:
        InputError: An address cannot be bound.
        UnavailableError: pyzmq is not installed.
    """

    def __init__(self, endpoints: Endpoints) -> None:
        from optc.system.needs import kv_events_packages

        with kv_events_packages():
            import zmq
        self._topic = endpoints.topic.encode()
        self._batches: SimpleQueue[EventBatch | None] = SimpleQueue()
        self._sent: deque[tuple[int, bytes]] = deque(maxlen=_KEPT)
        self._number = 0
        self._context = zmq.Context()
        try:
            self._out = _bound(self._context, zmq.PUB, endpoints.publish)
            replay = endpoints.replay
            self._again = _bound(self._context, zmq.ROUTER, replay) if replay else None
        except InputError:
            self._context.destroy(linger=0)
            raise
        self._thread = threading.Thread(target=self._run, name="optc-kv-events", daemon=True)
        self._thread.start()

    def __call__(self, batch: EventBatch) -> None:
        """Publish a batch soon."""
        self._batches.put(batch)

    def close(self) -> None:
        """Send what is left, and free the addresses."""
        self._batches.put(None)
        self._thread.join()

    def _run(self) -> None:
        """Sockets belong to this thread from its start to its end."""
        while True:
            if self._again is not None and self._again.poll(_LOOK_MS):
                self._replay(self._again)
            while self._again is None or not self._batches.empty():
                batch = self._batches.get()
                if batch is None:
                    self._context.destroy(linger=1000)
                    return
                self._send(msgspec.msgpack.encode(batch))

    def _send(self, data: bytes) -> None:
        number, self._number = self._number, self._number + 1
        self._sent.append((number, data))
        self._out.send_multipart((self._topic, number.to_bytes(8, "big"), data))

    def _replay(self, socket: zmq.Socket[bytes]) -> None:
        """Send batches from a number on again, and a last message that says so."""
        frames = socket.recv_multipart()
        if len(frames) != 3 or len(frames[2]) != 8:
            return  # nothing that a client of this protocol sends
        client, _, first = frames
        for number, data in self._sent:
            if number >= int.from_bytes(first, "big"):
                socket.send_multipart((client, b"", number.to_bytes(8, "big"), data))
        socket.send_multipart((client, b"", _END, b""))


def _bound(context: zmq.Context[zmq.Socket[bytes]], kind: int, address: str) -> zmq.Socket[bytes]:
    import zmq

    socket = context.socket(kind)
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise InputError(f"cannot bind {address}: {error}", where="kv_events") from error
    return socket
