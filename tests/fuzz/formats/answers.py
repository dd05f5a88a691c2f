"""Answers of servers: each input is the exchange with a server of which some answers are damaged.

A server of this process answers as a registry or a Hub does. An input says which of its answers are
changed, and how: status, headers, bodies, lengths, redirects, or the bytes themselves.
"""

from __future__ import annotations

import gzip
import socket
import threading
from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import ClassVar

from tests.fuzz.edits import edit_bytes, edit_json
from tests.fuzz.form import Files, Format, Materials
from tests.fuzz.odd import TEXTS

#: No exchange has more requests that are looked at; which of them is damaged.
_REQUESTS = 8
_BOMB = gzip.compress(bytes(64 << 20))
_STATUS = (*(100, 101, 200, 201, 202, 204, 206, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405),)
_MORE_STATUS = (406, 409, 410, 416, 429, 451, 500, 502, 503, 504, 599, 999, 0)
_HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Length": ("0", "1", "-1", "many", "9" * 30, "1099511627776", "", "5, 6", "1.5"),
    "Content-Type": ("text/html", "application/json; charset=x", "", "a/b/c", "\x00"),
    "Content-Encoding": ("gzip", "deflate", "br", "zstd", "identity", "x"),
    "Transfer-Encoding": ("chunked", "gzip", "x", "chunked, chunked"),
    "Location": (
        "/",
        "",
        "file:///etc/passwd",
        "http://127.0.0.1:9/",
        "//",
        "http://[",
        "ftp://x/",
    ),
    "WWW-Authenticate": (
        *("Bearer", 'Bearer realm=""', 'Bearer realm="x"', 'Bearer realm="file:///etc/passwd"'),
        *(
            "Basic",
            "Negotiate",
            "",
            'Bearer realm="http://[::1"',
            'bearer realm="http://127.0.0.1:9"',
        ),
    ),
    "Link": ('</>; rel="next"', '<x>; rel="next"', "<", '<http://127.0.0.1:9/>; rel="next"'),
    "ETag": ("", '"', "a" * 5000, "../../x", "W/", "\x7f", '"../x"', "a/b"),
    "X-Linked-Etag": ("", "../x", "a" * 5000),
    "X-Linked-Size": ("-1", "x", "9" * 30),
    "X-Repo-Commit": ("", "x", "../../x", "a" * 5000, "0" * 40),
    "X-Error-Code": ("GatedRepo", "RepoNotFound", "RevisionNotFound", "EntryNotFound", "x"),
    "X-Error-Message": ("a" * 5000, "", "\x1b[31mred"),
    "Retry-After": ("1000000", "x", "-1"),
    "Accept-Ranges": ("none",),
    "Content-Range": ("bytes 0-1/2", "bytes */*", "x"),
}
_NOT_HTTP = (b"", b"\x00" * 100, b"HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n", b"HTTP/1.1 abc x\r\n\r\n")
_LONG = (
    b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 500 + b"\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
)


@dataclass
class Answer:
    """An HTTP answer before it is written."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def to_bytes(self, method: str) -> bytes:
        headers = {"Content-Length": str(len(self.body)), "Connection": "close", **self.headers}
        lines = [f"HTTP/1.1 {self.status} x", *(f"{name}: {one}" for name, one in headers.items())]
        head = "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogatepass")
        return head if method == "HEAD" else head + self.body


@dataclass(frozen=True)
class Exchange:
    """What is asked of the server, and the damage: which request it is done to, and its seed."""

    act: str
    damage: tuple[tuple[int, int], ...] = ()


class Server:
    """Answers one request after the other, in a thread of its own, on a free port of this machine.

    Args:
        answer: Of a method, a path and headers; what a right server says.
    """

    def __init__(self, form: Answers) -> None:
        self._form = form
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.damage: tuple[tuple[int, int], ...] = ()
        self.told: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(20)
                self._exchange(connection)
            except OSError:
                pass  # the client went

    def _exchange(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        method, path, *_ = [*stream.readline().decode("latin-1").split(), "", ""]
        headers = {}
        while line := stream.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", 0)))
        number = len(self.told)
        self.told.append(f"{method} {path}")
        answer = self._form.answer(method, path, headers, body)
        seeds = [seed for at, seed in self.damage if at in (number, _REQUESTS)]
        data = damaged(answer, method, [Random(seed) for seed in seeds])
        connection.sendall(data)


def damaged(answer: Answer, method: str, changes: list[Random]) -> bytes:
    """The bytes of an answer after its changes."""
    raw: list[Random] = []
    for random in changes:
        kind = random.randrange(12)
        if kind < 4:
            answer = Answer(answer.status, answer.headers, edit_json(random, answer.body))
        elif kind < 5:
            answer = Answer(answer.status, answer.headers, edit_bytes(random, answer.body))
        elif kind < 7:
            status = random.choice((*_STATUS, *_MORE_STATUS))
            answer = Answer(status, answer.headers, answer.body)
        elif kind < 10:
            answer = _other_header(random, answer)
        else:
            raw.append(random)
    data = answer.to_bytes(method)
    for random in raw:
        kind = random.randrange(4)
        if kind == 0:
            data = random.choice((*_NOT_HTTP, *_LONG))
        elif kind == 1:
            data = data[: random.randrange(len(data) + 1)]
        elif kind == 2:
            zipped = {**answer.headers, "Content-Encoding": "gzip"}
            data = Answer(200, zipped, _BOMB).to_bytes(method)
        else:
            data = edit_bytes(random, data)
    return data


def _other_header(random: Random, answer: Answer) -> Answer:
    headers = dict(answer.headers)
    if headers and random.random() < 0.3:
        del headers[random.choice(sorted(headers))]
        return Answer(answer.status, headers, answer.body)
    name = random.choice(sorted(_HEADERS))
    value = random.choice((*_HEADERS[name], random.choice(TEXTS)))
    headers[name] = value.replace("\r", "").replace("\n", "")
    status = answer.status
    if name == "Location":
        status = random.choice((301, 302, 303, 307, 308))
    if name == "WWW-Authenticate":
        status = 401
    return Answer(status, headers, answer.body)


class Answers(Format[Exchange]):
    """Exchanges with a server.

    Attributes:
        acts: What may be asked.
        server: The worker's own.
    """

    acts: ClassVar[tuple[str, ...]]
    server: Server
    folder: Path

    def prepare(self, materials: Materials) -> None:
        """Nothing: there is a server in each worker."""

    def open(self, folder: Path) -> None:
        self.folder = folder
        self.server = Server(self)

    @abstractmethod
    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """The answer of a right server."""

    @abstractmethod
    def ask(self, act: str) -> None:
        """Give the exchange to optc."""

    def sample(self, random: Random) -> Exchange:
        return Exchange(random.choice(self.acts))

    def edit(self, random: Random, value: Exchange) -> Exchange:
        # The last number is every request: a server that always answers so.
        at = random.choice((0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, _REQUESTS))
        return Exchange(value.act, (*value.damage, (at, random.getrandbits(32))))

    def run(self, value: Exchange) -> None:
        self.server.damage, self.server.told = value.damage, []
        self.ask(value.act)

    def shown(self, value: Exchange) -> Files:
        told = getattr(getattr(self, "server", None), "told", [])
        return {"exchange.txt": "\n".join([repr(value), *told]).encode("utf-8", "backslashreplace")}
