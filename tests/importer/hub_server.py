"""A local stand-in of the Hugging Face Hub's HTTP API, and settings that make it the Hub.

It serves the files of a folder as the model ``acme/tiny`` (branch ``main``, tag ``v1``), the gated
model ``acme/gated`` and the private one ``acme/private``, whose token is ``secret``; and other
folders by the names that it is told.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secret"
REVISIONS = ("main", "v1", COMMIT)


class Hub(ThreadingHTTPServer):
    """Serves folders; remembers which files were taken."""

    def __init__(self, folder: Path, others: Mapping[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.repos = {"acme/tiny": folder, "acme/private": folder, **others}
        self.taken: list[str] = []
        self.odd: dict[str, tuple[int, bytes, dict[str, str]]] = {}  # answers by parts of paths

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def files(self, repo: str) -> dict[str, bytes]:
        folder = self.repos[repo]
        found = (path for path in sorted(folder.rglob("*")) if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        for part, (code, data, headers) in self.server.odd.items():
            if part in self.path:
                self._send(code, data, headers, body)
                return
        path = self.path.partition("?")[0].strip("/")
        parts = path.removeprefix("api/models/").split("/")
        repo, rest = "/".join(parts[:2]), parts[2:]
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repo == "acme/gated":
            self._send(403, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"})
        elif repo not in self.server.repos or (repo == "acme/private" and token != TOKEN):
            self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif rest[1] not in REVISIONS:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        else:
            self._serve(repo, rest[0], "/".join(rest[2:]), body)

    def _serve(self, repo: str, what: str, name: str, body: bool) -> None:
        files = self.server.files(repo)
        if what == "revision":
            siblings = [{"rfilename": path} for path in files]
            self._json({"id": repo, "sha": COMMIT, "siblings": siblings})
        elif what == "tree":
            self._json(
                [
                    {"type": "file", "path": path, "size": len(data), "oid": _oid(data)}
                    for path, data in files.items()
                ]
            )
        elif name not in files:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        else:
            if body:
                self.server.taken.append(name)
            tags = {"X-Repo-Commit": COMMIT, "ETag": f'"{_oid(files[name])}"'}
            self._send(200, files[name], tags, body)

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(
        self, code: int, data: bytes, headers: dict[str, str] | None = None, body: bool = True
    ) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body and self.command == "GET":
            self.wfile.write(data)


def _oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@contextmanager
def hub(folder: Path, cache: Path, **others: Path) -> Iterator[Hub]:
    """The stand-in, which is the Hub for huggingface_hub while the block runs, with a cache of its
    own and no token; ``others`` are folders that it serves as ``acme/NAME``."""
    from huggingface_hub import constants

    server = Hub(folder, {f"acme/{name}": path for name, path in others.items()})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        patch.setattr(constants, "ENDPOINT", server.url)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(constants, "HF_HUB_CACHE", str(cache))
        patch.setattr(constants, "HF_TOKEN_PATH", str(cache / "token"))
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.delenv("HF_TOKEN", raising=False)
        try:
            yield server
        finally:
            server.shutdown()
            server.server_close()
