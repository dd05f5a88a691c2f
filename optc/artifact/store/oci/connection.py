"""A connection to a registry: who asks is told to it alone, and what may pass is asked again.

Where a registry asks for a token it is fetched as
https://distribution.github.io/distribution/spec/auth/token describes.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from optc.artifact.store.oci.credentials import basic_credentials
from optc.artifact.store.oci.manifest import MOST_BYTES
from optc.artifact.store.oci.patience import TRIES, asked_to_wait, may_pass, wait
from optc.artifact.store.oci.place import Moved
from optc.artifact.store.oci.reference import Reference
from optc.artifact.store.oci.unreachable import reach_hint
from optc.errors import InputError, OptcError, UnavailableError
from optc.system.safe_json import parse_json

#: Seconds without a byte after which a registry counts as gone.
_TIMEOUT_S = 60.0
_TLS = "has it TLS? then leave --plain-http out"
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


class MissingError(InputError):
    """HTTP 404."""


class Connection:
    """Requests to one registry.

    Args:
        reference: In the registry.
        plain_http: Without TLS.

    Attributes:
        base: The address of the repository.
    """

    def __init__(self, reference: Reference, *, plain_http: bool) -> None:
        scheme = "http" if plain_http else "https"
        self.base = f"{scheme}://{reference.host}/v2/{reference.repository}"
        self._reference, self._plain_http = reference, plain_http
        self._opener: OpenerDirector = build_opener(_Redirects)
        self._authorization = ""
        self._refused_tokens: set[str] = set()  # by the challenges that they were given for

    @contextmanager
    def call(
        self, method: str, url: str, data: Any = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        """The response to a request.

        Raises:
            MissingError: What is asked for is not there.
            InputError: The registry refuses.
            UnavailableError: It cannot be reached.
        """
        with self.errors(), self.answered(method, url, data, headers) as response:
            yield response

    def answered(
        self,
        method: str,
        url: str,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
        tries: int = TRIES,
    ) -> Any:
        """The response to a request, which is made again where that may help: with a token where
        one is wanted, or a new one where it has expired."""
        asked = ""  # for a token, by this challenge
        tried = 1
        while True:
            try:
                return self._open(method, url, data, headers)
            except HTTPError as error:
                challenge = error.headers.get("WWW-Authenticate", "")
                wanted = error.code == HTTPStatus.UNAUTHORIZED and self._is_own(error.url)
                if asked and wanted:
                    self._refused_tokens.add(asked)
                if wanted and not asked and challenge not in self._refused_tokens:
                    asked = challenge
                    self._authorize(challenge)
                elif tried >= tries or not may_pass(error):
                    raise
                else:
                    wait(error, tried)
                    tried += 1
            except (OSError, http.client.HTTPException) as error:
                if tried >= tries or not may_pass(error):
                    raise
                wait(error, tried)
                tried += 1
            rewind(data)

    def _is_own(self, url: str) -> bool:
        """True for a place of the registry itself, by the same scheme: no other is told, or asked,
        who we are."""
        return urlsplit(url)[:2] == urlsplit(self.base)[:2]

    def _open(self, method: str, url: str, data: Any, headers: Mapping[str, str] | None) -> Any:
        request = Request(url, data=data, method=method, headers=dict(headers or {}))
        if self._authorization and self._is_own(url):
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
        if not self._plain_http and not wanted["realm"].lower().startswith("https://"):
            raise self._refused(f"it wants the password told to {wanted['realm']}, without TLS")
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
    def errors(self) -> Iterator[None]:
        """Say of an error in the block, which is one of HTTP or of the system, what it means.

        Raises:
            MissingError, InputError, UnavailableError: As of `call`.
        """
        where = self._reference.text
        try:
            yield
        except HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                raise MissingError("the registry has no such artifact", where=where) from error
            if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise self._refused(f"HTTP {error.code}") from error
            problem = f"the registry answered HTTP {error.code} {error.reason}"
            plain = self._plain_http and error.code == HTTPStatus.BAD_REQUEST
            hint = _TLS if plain else ""
            if seconds := asked_to_wait(error):
                hint = f"it asks to wait for {seconds:.0f} s"
            raise InputError(problem, where=where, hint=hint) from error
        except URLError as error:
            hint = reach_hint(error.reason, plain_http=self._plain_http)
            raise UnavailableError(
                f"the registry cannot be reached: {error.reason}", where=where, hint=hint
            ) from error
        except http.client.IncompleteRead as error:
            problem = f"the transfer broke: {error.expected} bytes did not come"
            raise UnavailableError(problem, where=where) from error
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


class _Redirects(HTTPRedirectHandler):
    """Follows redirects without telling other hosts what was meant for the registry."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme not in ("http", "https"):
            return None
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            made.remove_header("Authorization")
        return made


class Counting:
    """A file that says how much of it was read."""

    def __init__(self, stream: IO[bytes], moved: Moved) -> None:
        self._stream, self._moved, self._done = stream, moved, 0

    def read(self, count: int) -> bytes:
        """The next bytes."""
        data = self._stream.read(count)
        self._done += len(data)
        self._moved(len(data))
        return data

    def rewind(self) -> None:
        """Begin anew, for who asks again."""
        self._stream.seek(0)
        self._moved(-self._done)
        self._done = 0


def rewind(data: Any) -> None:
    """Begin what is sent anew, where it is a file."""
    if isinstance(data, Counting):
        data.rewind()
