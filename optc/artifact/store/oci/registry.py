"""A registry: https://github.com/opencontainers/distribution-spec, version 1.1.

Blobs are uploaded in one piece. Where a registry asks for a token it is fetched as
https://distribution.github.io/distribution/spec/auth/token describes.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from optc.artifact.store.oci.copying import write_blob
from optc.artifact.store.oci.credentials import basic_credentials
from optc.artifact.store.oci.manifest import MEDIA_TYPE, MOST_BYTES, Blob, digest_of
from optc.artifact.store.oci.place import Moved, Tagged, tags_hint
from optc.artifact.store.oci.reference import Reference, is_tag
from optc.artifact.store.oci.unreachable import reach_hint
from optc.errors import InputError, OptcError, UnavailableError
from optc.system.safe_json import parse_json

#: Seconds without a byte after which a registry counts as gone.
_TIMEOUT_S = 60.0
_TLS = "has it TLS? then leave --plain-http out"
#: Pages of tags that are read at most.
_MOST_PAGES = 100
_NEXT = re.compile(r'<([^>]+)>;\s*rel="?next"?')
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


class Registry:
    """`optc.artifact.store.oci.place.Place` behind HTTP.

    Args:
        reference: Of a registry.
        plain_http: Without TLS, for registries of a test or of this machine.
    """

    def __init__(self, reference: Reference, *, plain_http: bool = False) -> None:
        self._reference = reference
        scheme = "http" if plain_http else "https"
        self._base = f"{scheme}://{reference.host}/v2/{reference.repository}"
        self._plain_http = plain_http
        self._opener: OpenerDirector = build_opener(_Redirects)
        self._authorization = ""
        self._challenges: set[str] = set()

    def has(self, blob: Blob) -> bool:
        """True if the registry has it."""
        try:
            with self._call("HEAD", f"{self._base}/blobs/{blob.digest}"):
                return True
        except _MissingError:
            return False

    def put(self, blob: Blob, source: Path, moved: Moved) -> None:
        """Upload a file; the registry checks its digest."""
        with source.open("rb") as stream:
            self._upload(blob, _Counting(stream, moved))

    def put_bytes(self, blob: Blob, data: bytes) -> None:
        """Upload bytes."""
        self._upload(blob, data)

    def put_manifest(self, data: bytes) -> None:
        """Upload the manifest under the tag."""
        url = f"{self._base}/manifests/{self._reference.version}"
        with self._call("PUT", url, data, {"Content-Type": MEDIA_TYPE}):
            pass

    def manifest(self) -> bytes:
        """The manifest that tag or digest names.

        Raises:
            InputError: There is none, it is too large, or has other bytes than its digest says.
        """
        version = self._reference.version
        url = f"{self._base}/manifests/{version}"
        try:
            with self._call("GET", url, headers={"Accept": MEDIA_TYPE}) as response:
                data = response.read(MOST_BYTES + 1)
        except _MissingError as error:
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
            with self._call("GET", url) as response:
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
            with self._call("GET", url, headers={"Accept": MEDIA_TYPE}) as response:
                data = response.read(MOST_BYTES)
            found.append(Tagged(tag, digest_of(data), data))
        return found

    def untag(self) -> None:
        """Ask the registry to forget the tag; not all do."""
        version = self._reference.version
        try:
            with self._call("DELETE", f"{self._base}/manifests/{version}"):
                pass
        except _MissingError as error:
            raise self._absent(version) from error

    def _absent(self, version: str) -> InputError:
        """The error for a manifest that is not there: says which tags are."""
        where = self._reference.text
        try:
            tags = self.tags()
        except _MissingError:
            return InputError("the registry has no such repository", where=where)
        except OptcError:
            return InputError("the registry has no such artifact", where=where)
        hint = tags_hint(tags) if tags else "it has no tags"
        return InputError(f"the repository has nothing called {version!r}", where=where, hint=hint)

    def get(self, blob: Blob, target: Path, moved: Moved) -> None:
        """Download a blob, checked on the way."""
        with self._call("GET", f"{self._base}/blobs/{blob.digest}") as response:
            write_blob(response, target, blob, moved, self._reference.text)

    def _upload(self, blob: Blob, data: Any) -> None:
        begin = f"{self._base}/blobs/uploads/"
        with self._call("POST", begin, b"") as response:
            location = response.headers.get("Location", "")
        if not location:
            raise InputError("the registry names no place to upload to", where=self._reference.text)
        url = urljoin(begin, location)
        joined = f"{url}{'&' if urlsplit(url).query else '?'}{urlencode({'digest': blob.digest})}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        with self._call("PUT", joined, data, headers):
            pass

    @contextmanager
    def _call(
        self, method: str, url: str, data: Any = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        """The response to a request; asks for a token where one is wanted, once for each scope.

        Raises:
            _MissingError: What is asked for is not there.
            InputError: The registry refuses.
            UnavailableError: It cannot be reached.
        """
        with self._errors():
            try:
                response = self._open(method, url, data, headers)
            except HTTPError as error:
                challenge = error.headers.get("WWW-Authenticate", "")
                if error.code != HTTPStatus.UNAUTHORIZED or challenge in self._challenges:
                    raise
                self._challenges.add(challenge)  # another one may want more, such as to push
                self._authorize(challenge)
                response = self._open(method, url, data, headers)
            with response:
                yield response

    def _open(self, method: str, url: str, data: Any, headers: Mapping[str, str] | None) -> Any:
        request = Request(url, data=data, method=method, headers=dict(headers or {}))
        if self._authorization and urlsplit(url).netloc == self._reference.host:
            request.add_header("Authorization", self._authorization)
        return self._opener.open(request, timeout=_TIMEOUT_S)

    def _authorize(self, challenge: str) -> None:
        """Get what the registry asks for: a name and password, or a token for them.

        Raises:
            InputError: There is none for this registry.
        """
        kind, _, rest = challenge.partition(" ")
        basic = basic_credentials(self._reference.host)
        if kind.lower() == "basic" and basic:
            self._authorization = basic
            return
        wanted = dict(_PARAMETER.findall(rest))
        if kind.lower() != "bearer" or "realm" not in wanted:
            raise self._refused("it wants a name and password")
        scope = f"repository:{self._reference.repository}:pull,push"
        query = {"service": wanted.get("service", ""), "scope": wanted.get("scope", scope)}
        request = Request(f"{wanted['realm']}?{urlencode(query)}")
        if basic:
            request.add_header("Authorization", basic)
        with self._opener.open(request, timeout=_TIMEOUT_S) as response:
            answer: Any = parse_json(response.read(MOST_BYTES))
        known = answer if isinstance(answer, dict) else {}
        token = known.get("token") or known.get("access_token")
        if not isinstance(token, str):
            raise self._refused("it gives no token")
        self._authorization = f"Bearer {token}"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        where = self._reference.text
        try:
            yield
        except HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                raise _MissingError("the registry has no such artifact", where=where) from error
            if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise self._refused(f"HTTP {error.code}") from error
            problem = f"the registry answered HTTP {error.code} {error.reason}"
            plain = self._plain_http and error.code == HTTPStatus.BAD_REQUEST
            raise InputError(problem, where=where, hint=_TLS if plain else "") from error
        except URLError as error:
            hint = reach_hint(error.reason, plain_http=self._plain_http)
            raise UnavailableError(
                f"the registry cannot be reached: {error.reason}", where=where, hint=hint
            ) from error
        except (http.client.HTTPException, ValueError) as error:
            hint = _TLS if self._plain_http else ""
            problem = f"the registry answered nonsense: {error}"
            raise InputError(problem, where=where, hint=hint) from error
        except OSError as error:
            problem = f"the transfer broke: {error.strerror or error}"
            raise UnavailableError(problem, where=where) from error

    def _refused(self, why: str) -> OptcError:
        return InputError(
            f"the registry refuses: {why}",
            where=self._reference.text,
            hint=f"docker login {self._reference.host}, or oras login",
        )


class _MissingError(InputError):
    """HTTP 404."""


class _Redirects(HTTPRedirectHandler):
    """Follows redirects without telling other hosts what was meant for the registry."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            made.remove_header("Authorization")
        return made


class _Counting:
    """A file that says how much of it was read."""

    def __init__(self, stream: IO[bytes], moved: Moved) -> None:
        self._stream, self._moved = stream, moved

    def read(self, count: int) -> bytes:
        data = self._stream.read(count)
        self._moved(len(data))
        return data
