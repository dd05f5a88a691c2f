"""A registry: https://github.com/opencontainers/distribution-spec, version 1.1.

Blobs are uploaded in one piece; downloads that break off go on where they were.
"""

from __future__ import annotations

import http.client
import re
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from optc.artifact.store.oci.connection import Connection, Counting, MissingError, rewind
from optc.artifact.store.oci.copying import BlobFile
from optc.artifact.store.oci.manifest import MEDIA_TYPE, MOST_BYTES, Blob, digest_of
from optc.artifact.store.oci.patience import TRIES, may_pass, wait
from optc.artifact.store.oci.place import Moved, Tagged, tags_hint
from optc.artifact.store.oci.reference import Reference, is_tag
from optc.errors import InputError, OptcError
from optc.system.safe_json import parse_json

_PART = HTTPStatus.PARTIAL_CONTENT
#: Pages of tags that are read at most.
_MOST_PAGES = 100
_NEXT = re.compile(r'<([^>]+)>;\s*rel="?next"?')


class Registry:
    """`optc.artifact.store.oci.place.Place` behind HTTP.

    Args:
        reference: Of a registry.
        plain_http: Without TLS, for registries of a test or of this machine.
    """

    def __init__(self, reference: Reference, *, plain_http: bool = False) -> None:
        self._reference = reference
        self._http = Connection(reference, plain_http=plain_http)
        self._base = self._http.base

    def has(self, blob: Blob) -> bool:
        """True if the registry has it."""
        try:
            with self._http.call("HEAD", f"{self._base}/blobs/{blob.digest}"):
                return True
        except MissingError:
            return False

    def put(self, blob: Blob, source: Path, moved: Moved) -> None:
        """Upload a file; the registry checks its digest."""
        with source.open("rb") as stream:
            self._upload(blob, Counting(stream, moved))

    def put_bytes(self, blob: Blob, data: bytes) -> None:
        """Upload bytes."""
        self._upload(blob, data)

    def put_manifest(self, data: bytes) -> None:
        """Upload the manifest under the tag."""
        url = f"{self._base}/manifests/{self._reference.version}"
        with self._http.call("PUT", url, data, {"Content-Type": MEDIA_TYPE}):
            pass

    def manifest(self) -> bytes:
        """The manifest that tag or digest names.

        Raises:
            InputError: There is none, it is too large, or has other bytes than its digest says.
        """
        version = self._reference.version
        url = f"{self._base}/manifests/{version}"
        try:
            with self._http.call("GET", url, headers={"Accept": MEDIA_TYPE}) as response:
                data = response.read(MOST_BYTES + 1)
        except MissingError as error:
            raise self._absent(version) from error
        if len(data) > MOST_BYTES:
            raise InputError("the manifest is too large", where=self._reference.text)
        if version.startswith("sha256:") and digest_of(data) != version:
            problem = "the registry gave another manifest than the digest names"
            raise InputError(problem, where=self._reference.text)
        return data

    def tags(self) -> list[str]:
        """All tags of the repository, as the registry orders them.

        Raises:
            InputError: There is no such repository.
        """
        found: list[str] = []
        url = f"{self._base}/tags/list"
        for _ in range(_MOST_PAGES):
            with self._http.call("GET", url) as response:
                answer: Any = parse_json(response.read(MOST_BYTES))
                link = response.headers.get("Link", "")
            listed = answer.get("tags") if isinstance(answer, dict) else None
            found += [tag for tag in listed or [] if isinstance(tag, str) and is_tag(tag)]
            following = _NEXT.match(link)
            if following is None:
                break
            url = urljoin(url, following[1])
            if urlsplit(url)[:2] != urlsplit(self._base)[:2]:  # who knows what is told whom
                break
        return found

    def tagged(self) -> list[Tagged]:
        """The manifests that tags name: a request for each."""
        found = []
        for tag in self.tags():
            url = f"{self._base}/manifests/{tag}"
            with self._http.call("GET", url, headers={"Accept": MEDIA_TYPE}) as response:
                data = response.read(MOST_BYTES)
            found.append(Tagged(tag, digest_of(data), data))
        return found

    def untag(self) -> None:
        """Ask the registry to forget the tag; not all do."""
        version = self._reference.version
        try:
            with self._http.call("DELETE", f"{self._base}/manifests/{version}"):
                pass
        except MissingError as error:
            raise self._absent(version) from error

    def _absent(self, version: str) -> InputError:
        """The error for a manifest that is not there: says which tags are."""
        where = self._reference.text
        try:
            tags = self.tags()
        except MissingError:
            return InputError("the registry has no such repository", where=where)
        except OptcError:
            return InputError("the registry has no such artifact", where=where)
        hint = tags_hint(tags) if tags else "it has no tags"
        return InputError(f"the repository has nothing called {version!r}", where=where, hint=hint)

    def get(self, blob: Blob, target: Path, moved: Moved) -> None:
        """Download a blob, checked on the way."""
        url, tried = f"{self._base}/blobs/{blob.digest}", 0
        with self._http.errors(), BlobFile(target, blob, moved, self._reference.text) as file:
            while not file.whole or not tried:
                before = file.done
                try:
                    self._fetch(url, file)
                    if not file.whole:  # a connection that ends early says nothing
                        raise http.client.IncompleteRead(b"", blob.size - file.done)
                except (OSError, http.client.HTTPException) as error:
                    tried = 1 if file.done > before else tried + 1
                    if tried >= TRIES or not may_pass(error):
                        raise
                    wait(error, tried)
                else:
                    break
            file.check()

    def _fetch(self, url: str, file: BlobFile) -> None:
        """Get what is missing of a blob, or all of it where the registry gives no part."""
        headers = {"Range": f"bytes={file.done}-"} if file.done else {}
        with self._http.answered("GET", url, None, headers, tries=1) as response:
            if file.done and getattr(response, "status", HTTPStatus.OK) != _PART:
                file.begin_again()
            file.take(response)

    def _upload(self, blob: Blob, data: Any) -> None:
        """Upload a blob; one that breaks off begins anew, with a place of its own."""
        with self._http.errors():
            for tried in count(1):
                try:
                    self._upload_once(blob, data)
                except (OSError, http.client.HTTPException) as error:
                    if tried >= TRIES or not may_pass(error):
                        raise
                    wait(error, tried)
                    rewind(data)
                else:
                    return

    def _upload_once(self, blob: Blob, data: Any) -> None:
        begin = f"{self._base}/blobs/uploads/"
        with self._http.answered("POST", begin, b"", tries=1) as response:
            location = response.headers.get("Location", "")
        if not location:
            raise InputError("the registry names no place to upload to", where=self._reference.text)
        url = urljoin(begin, location)
        joined = f"{url}{'&' if urlsplit(url).query else '?'}{urlencode({'digest': blob.digest})}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        with self._http.answered("PUT", joined, data, headers, tries=1):
            pass
