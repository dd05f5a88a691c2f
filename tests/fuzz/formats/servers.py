"""A registry and a Hub whose answers are damaged."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fuzz.form import Materials, expect
from tests.fuzz.formats.answers import Answer, Answers, Exchange

_TAG, _REPOSITORY = "v1", "me/model"
_COMMIT = "0123456789abcdef0123456789abcdef01234567"
#: Seconds that a silent server is waited for: those of the product are longer than a hang.
_SILENT_S = 2.0


class Registry(Answers):
    """Pulls, pushes and lists of tags by a registry that wants a token."""

    name = "registry"
    acts = ("pull", "pull", "pull", "push", "tags", "untag")

    def prepare(self, materials: Materials) -> None:
        from optc.artifact.store.oci import connection, patience

        connection._TIMEOUT_S = _SILENT_S
        patience._FIRST_S = patience._LONGEST_S = 0.0  # what is asked for again is so at once

    def open(self, folder: Path) -> None:
        super().open(folder)
        from optc.artifact.store.oci.transfer import push
        from tests.artifact.toy import write_toy

        os.environ |= {"DOCKER_CONFIG": str(folder / "docker"), "no_proxy": "*"}
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.made = write_toy(folder / "made")
        push(self.made, self.place())
        self.whole = dict(self.blobs), dict(self.manifests)

    def place(self) -> Any:
        from optc.artifact.store.oci.reference import parse_reference
        from optc.artifact.store.oci.registry import Registry as Place

        reference = parse_reference(f"{self.server.host}/{_REPOSITORY}:{_TAG}", "x")
        return Place(reference, plain_http=True)

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        url = urlsplit(path)
        if url.path == "/token":
            return Answer(200, {"Content-Type": "application/json"}, b'{"token": "t"}')
        if headers.get("authorization") != "Bearer t":
            realm = f'Bearer realm="http://{self.server.host}/token",service="s"'
            return Answer(401, {"WWW-Authenticate": realm}, b"{}")
        rest = url.path.removeprefix(f"/v2/{_REPOSITORY}/")
        kind, _, name = rest.partition("/")
        if method == "POST":
            return Answer(202, {"Location": "/v2/upload?state=x"})
        if method == "PUT":
            return self._put(name, parse_qs(url.query).get("digest", []), body)
        if method == "DELETE":
            return Answer(202)
        if kind == "tags":
            return Answer(200, {}, json.dumps({"name": _REPOSITORY, "tags": [_TAG]}).encode())
        held = self.blobs if kind == "blobs" else self.manifests
        return Answer(200, {}, held[name]) if name in held else Answer(404, {}, b"{}")

    def _put(self, name: str, digest: list[str], body: bytes) -> Answer:
        if digest:
            self.blobs[digest[0]] = body
        else:
            for known in (name, f"sha256:{hashlib.sha256(body).hexdigest()}"):
                self.manifests[known] = body
        return Answer(201)

    def run(self, value: Exchange) -> None:
        self.blobs, self.manifests = dict(self.whole[0]), dict(self.whole[1])
        if value.act == "push":
            self.blobs, self.manifests = {}, {}
        super().run(value)

    def ask(self, act: str) -> None:
        from optc.artifact.artifact import Artifact
        from optc.artifact.store.oci.transfer import pull, push

        place, output = self.place(), self.folder / "output"
        if act == "push":
            push(self.made, place)
            return
        if act in ("tags", "untag"):
            getattr(place, "tagged" if act == "tags" else "untag")()
            return
        shutil.rmtree(output, ignore_errors=True)
        try:
            pull(place, output, "where")
        except BaseException:
            left = [path.name for path in self.folder.iterdir() if "output" in path.name]
            expect(not left, "a pull that failed leaves files", left)
            raise
        same = Artifact.open(output).digest == self.made.digest
        expect(same, "another artifact was pulled", output)


class Hub(Answers):
    """Downloads of a model from a Hub: small files, then weights."""

    name = "hub"
    acts = ("model", "model", "files")

    def prepare(self, materials: Materials) -> None:
        import huggingface_hub  # noqa: F401 - imported once, before workers are forked

        import optc.importer.hub  # noqa: F401

    def open(self, folder: Path) -> None:
        super().open(folder)
        import time

        from huggingface_hub import constants

        time.sleep = lambda seconds: None  # between tries
        os.environ |= {"no_proxy": "*", "HF_TOKEN": ""}
        url = f"http://{self.server.host}"
        constants.ENDPOINT = url
        constants.HUGGINGFACE_CO_URL_TEMPLATE = url + "/{repo_id}/resolve/{revision}/{filename}"
        constants.HF_HUB_CACHE = str(folder / "cache")
        constants.HF_TOKEN_PATH = str(folder / "token")
        constants.HF_HUB_OFFLINE = False
        constants.HF_HUB_DOWNLOAD_TIMEOUT = constants.HF_HUB_ETAG_TIMEOUT = int(_SILENT_S)
        self.files = {
            "config.json": b'{"model_type": "llama"}',
            "tokenizer.json": b'{"model": {}}',
            "model.safetensors": bytes(2000),
        }

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        parts = urlsplit(path).path.strip("/").removeprefix("api/models/").split("/")
        what, name = parts[2] if len(parts) > 2 else "", "/".join(parts[4:])
        if what == "revision":
            siblings = [{"rfilename": known} for known in self.files]
            return _json({"id": "acme/tiny", "sha": _COMMIT, "siblings": siblings})
        if what == "tree":
            return _json(
                [
                    {"type": "file", "path": known, "size": len(data), "oid": _oid(data)}
                    for known, data in self.files.items()
                ]
            )
        if name not in self.files:
            missing = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": _COMMIT}
            return Answer(404, missing)
        data = self.files[name]
        return Answer(200, {"X-Repo-Commit": _COMMIT, "ETag": f'"{_oid(data)}"'}, data)

    def ask(self, act: str) -> None:
        from optc.importer.hub import local_files, local_model

        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        if act == "files":
            local_files(Path("acme/tiny@v1"), ("config.json", "absent.json"))
            return
        found = local_model("acme/tiny")
        cache = self.folder / "cache"
        inside = found.resolve().is_relative_to(cache.resolve())
        expect(inside, "files lie outside of the cache", found)


def _json(value: object) -> Answer:
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(value).encode())


def _oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
