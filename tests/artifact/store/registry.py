"""A stand-in of an OCI registry: what `optc push` and `optc pull` need of the distribution API."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

NAME, PASSWORD = "reader", "secret"


class StandIn:
    """What a registry holds, and how it behaves.

    Attributes:
        blobs: By digest.
        manifests: By repository and tag or digest.
        requests: Methods and paths, in order.
        bearer: Wants a token, which it gives for a name and password.
        faults: Of the next answers to what is matched by ``at``, in order: a status, or how many
            bytes of a blob come before the connection is reset.
        at: Methods and parts of paths that have faults.
        ranges: Parts of blobs are given.
        expired: The next request finds its token expired.
        redirects: Blobs are elsewhere (on the same server, by another name of the host).
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.bearer = False
        self.redirects = False
        self.host = ""
        self.faults: list[int | str] = []
        self.at = ("GET", "/blobs/")
        self.ranges = True
        self.expired = False

    def methods(self, method: str) -> list[str]:
        return [path for made, path in self.requests if made == method]


@contextmanager
def running() -> Iterator[StandIn]:
    """A registry on a free port of this machine."""
    state = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._blob_or_manifest()

        def _fails(self) -> bool:
            method, part = state.at
            if not state.faults or self.command != method or part not in self.path:
                return False
            fault = state.faults.pop(0)
            state.requests.append((self.command, self.path))
            if isinstance(fault, int):
                more = {"Retry-After": "7"} if fault in (429, 503) else {}
                self._answer(fault, b"no", **more)
                return True
            if method != "GET":
                self.close_connection = True
                return True
            data = state.blobs.get(self.path.rpartition("/")[2], b"")
            begin = self._begin()
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(data) - begin))
            self.end_headers()
            self.wfile.write(data[begin : begin + int(fault)])
            self.close_connection = True
            return True

        def _begin(self) -> int:
            """The first byte that is asked for."""
            wanted = self.headers.get("Range", "")
            return int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and state.ranges else 0

        def do_GET(self) -> None:
            if self._fails():
                return
            if self.path.startswith("/token"):
                self._token()
            elif self.path.startswith("/elsewhere/"):
                assert self.headers.get("Authorization") is None, "told another host"
                self._answer(200, state.blobs[self.path.removeprefix("/elsewhere/")])
            else:
                self._blob_or_manifest()

        def do_POST(self) -> None:
            if not self._fails() and self._allowed("pull,push"):
                self._answer(202, b"", Location="/v2/upload/1?state=x")

        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            if self._fails():
                return
            if not self._allowed("pull,push"):
                return
            url = urlsplit(self.path)
            if url.path == "/v2/upload/1":
                (digest,) = parse_qs(url.query)["digest"]
                if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
                    self._answer(400, b'{"errors":[{"code":"DIGEST_INVALID"}]}')
                    return
                state.blobs[digest] = data
            else:
                repository, _, tag = url.path.removeprefix("/v2/").partition("/manifests/")
                digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
                value = json.loads(data)
                named = [one["digest"] for one in (value["config"], *value["layers"])]
                if not all(one in state.blobs for one in named):
                    self._answer(404, b'{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN"}]}')
                    return
                state.manifests[repository, tag] = state.manifests[repository, digest] = data
            self._answer(201, b"")

        def _blob_or_manifest(self) -> None:
            if not self._allowed("pull"):
                return
            path = urlsplit(self.path).path.removeprefix("/v2/")
            if path.endswith("/tags/list"):
                self._tags(path.removesuffix("/tags/list"))
                return
            repository, _, digest = path.partition("/blobs/")
            data = state.blobs.get(digest)
            if "/manifests/" in path:
                repository, _, tag = path.partition("/manifests/")
                data = state.manifests.get((repository, tag))
            elif data is not None and state.redirects and self.command == "GET":
                port = state.host.rpartition(":")[2]
                self._answer(307, b"", Location=f"http://localhost:{port}/elsewhere/{digest}")
                return
            if data is None:
                self._answer(404, b"{}")
            elif begin := self._begin():
                self._answer(206, data[begin:])
            else:
                self._answer(200, data)

        def _tags(self, repository: str) -> None:
            """Two a page."""
            known = [tag for name, tag in state.manifests if name == repository]
            tags = sorted(tag for tag in known if ":" not in tag)
            if not known:
                self._answer(404, b"{}")
                return
            (last,) = parse_qs(urlsplit(self.path).query).get("last", [""])
            page = [tag for tag in tags if tag > last][:2]
            body = json.dumps({"name": repository, "tags": page}).encode()
            if page and page[-1] != tags[-1]:
                link = f'</v2/{repository}/tags/list?last={page[-1]}>; rel="next"'
                self._answer(200, body, Link=link)
            else:
                self._answer(200, body)

        def do_DELETE(self) -> None:
            if not self._allowed("pull,push"):
                return
            repository, _, tag = self.path.removeprefix("/v2/").partition("/manifests/")
            gone = state.manifests.pop((repository, tag), None)
            self._answer(404 if gone is None else 202, b"")

        def _allowed(self, actions: str) -> bool:
            state.requests.append((self.command, self.path))
            told = self.headers.get("Authorization")
            known = not state.bearer or told in (f"Bearer {actions}", "Bearer pull,push")
            if known and not (state.expired and told):
                return True
            state.expired = False
            scope = f'scope="repository:me/model:{actions}"'
            realm = f'Bearer realm="http://{state.host}/token",service="stand-in",{scope}'
            self._answer(401, b"{}", **{"WWW-Authenticate": realm})
            return False

        def _token(self) -> None:
            expected = base64.b64encode(f"{NAME}:{PASSWORD}".encode()).decode()
            if self.headers.get("Authorization") != f"Basic {expected}":
                self._answer(401, b"{}")
                return
            (scope,) = parse_qs(urlsplit(self.path).query)["scope"]
            token = scope.rpartition(":")[2]
            self._answer(200, json.dumps({"token": token}).encode())

        def _answer(self, status: int, data: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
