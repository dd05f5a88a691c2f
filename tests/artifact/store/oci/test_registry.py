"""Name, password and token of a registry are told to it alone; what it answers is bounded."""

from __future__ import annotations

import io
import time
from email.message import Message
from http.client import BadStatusLine
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request

import pytest

from optc.artifact.store.oci import connection as module
from optc.artifact.store.oci.connection import _Redirects
from optc.artifact.store.oci.manifest import Blob, digest_of
from optc.artifact.store.oci.reference import parse_reference
from optc.artifact.store.oci.registry import Registry
from optc.errors import InputError, OptcError

HOST = "registry.example:5000"


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were waited for; none really are."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


class Opener:
    """Notes requests; answers what it is given."""

    def __init__(self, *answers: Any) -> None:
        self.requests: list[Request] = []
        self.answers = list(answers)

    def open(self, request: Request, timeout: float) -> Any:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else io.BytesIO()
        if isinstance(answer, Exception):
            raise answer
        return answer


def registry(*answers: Any) -> tuple[Registry, Opener]:
    made = Registry(parse_reference(f"{HOST}/models/a:latest", "test"))
    made._http._opener = opener = Opener(*answers)  # type: ignore[assignment]
    return made, opener


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (f"https://{HOST}/v2/models/a/blobs/x", True),
        ("https://registry.example/v2/models/a/blobs/x", False),
        ("https://registry.example:5001/x", False),
        ("https://elsewhere.example/upload?x=1", False),
        (f"https://elsewhere.example/{HOST}/x", False),
        (f"https://{HOST}.elsewhere.example/x", False),
    ],
)
def test_only_the_registry_is_told_who_asks(url: str, told: bool) -> None:
    made, opener = registry()
    made._http._authorization = "Bearer secret"
    made._http._open("PUT", url, b"", None)
    (request,) = opener.requests
    assert request.has_header("Authorization") is told


@pytest.mark.parametrize(
    ("url", "told"),
    [(f"https://{HOST}/other", True), ("https://elsewhere.example/blob", False)],
)
def test_who_a_redirect_leads_to_is_not_told(url: str, told: bool) -> None:
    request = Request(f"https://{HOST}/v2/blob", headers={"Authorization": "Bearer secret"})
    made = _Redirects().redirect_request(request, io.BytesIO(), 307, "", Message(), url)
    assert made is not None
    assert made.has_header("Authorization") is told


class Pages(io.BytesIO):
    """An answer with headers."""

    def __init__(self, tag: int) -> None:
        super().__init__(b'{"tags": ["t%d"]}' % tag)
        self.headers = {"Link": f'</v2/models/a/tags/list?n={tag}>; rel="next"'}


def test_pages_without_an_end_are_read_up_to_a_bound() -> None:
    made, opener = registry(*(Pages(number) for number in range(200)))
    assert made.tags() == [f"t{number}" for number in range(100)]
    assert len(opener.requests) == 100


@pytest.mark.parametrize(
    "link", ["https://elsewhere.example/v2/tags", f"http://{HOST}/v2/tags", f"//x.{HOST}/tags"]
)
def test_pages_elsewhere_are_not_asked_for(link: str) -> None:
    first = Pages(1)
    first.headers = {"Link": f'<{link}>; rel="next"'}
    made, opener = registry(first, Pages(2))
    assert made.tags() == ["t1"]
    assert len(opener.requests) == 1


def test_a_manifest_of_four_mebibytes_is_taken_and_no_larger_one() -> None:
    made, _ = registry(Answer(b"x" * (4 << 20)), Answer(b"x" * ((4 << 20) + 1)))
    assert len(made.manifest()) == 4 << 20
    with pytest.raises(InputError, match="the manifest is too large"):
        made.manifest()


def wants_token() -> HTTPError:
    headers = Message()
    headers["WWW-Authenticate"] = f'Bearer realm="https://{HOST}/token",service="s"'
    return HTTPError(f"https://{HOST}/v2/", 401, "no", headers, None)


@pytest.mark.parametrize(
    "answer",
    [b"[]", b"7", b"null", b'"token"', b"{}", b'{"token": 3}', b"[" * 100_000, b"\xff", b""],
)
def test_an_answer_that_is_no_token_is_one_error(answer: bytes) -> None:
    made, _ = registry(wants_token(), io.BytesIO(answer))
    with pytest.raises(InputError, match=r"it gives no token|answered nonsense") as caught:
        made.manifest()
    assert caught.value.where.startswith(HOST)


def refusal(code: int) -> HTTPError:
    return HTTPError(f"https://{HOST}/v2/", code, "for a reason", Message(), None)


class Answer(io.BytesIO):
    """An answer without headers that matter."""

    @property
    def headers(self) -> dict[str, str]:
        return {}


def test_a_refused_token_is_not_asked_for_again() -> None:
    made, opener = registry(wants_token(), Answer(b'{"token": "t"}'), wants_token(), wants_token())
    for requests in (3, 4):
        with pytest.raises(InputError, match="the registry refuses: HTTP 401"):
            made.has(Blob(digest_of(b""), 0))
        assert len(opener.requests) == requests


def test_tags_with_what_they_name() -> None:
    made, _ = registry(
        Answer(b'{"tags": ["v1", "v2", 7, "-no-tag"]}'), Answer(b"{}"), Answer(b"[]")
    )
    found = [(one.tag, one.digest, one.manifest) for one in made.tagged()]
    assert found == [("v1", digest_of(b"{}"), b"{}"), ("v2", digest_of(b"[]"), b"[]")]


@pytest.mark.parametrize("code", [400, 404, 500])
def test_an_answer_that_is_an_error_is_one(code: int) -> None:
    made, _ = registry(*[refusal(code)] * 4)
    said = "has no such artifact" if code == 404 else f"answered HTTP {code} for a reason"
    with pytest.raises(InputError, match=f"the registry {said}") as caught:
        made.tags()
    assert caught.value.hint == "", "with TLS it is not for the want of TLS"


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("broken", "may_want_tls"),
    [
        (400, True),  # what a server with TLS says to who talks without
        (500, False),
        (BadStatusLine("\x15\x03\x01"), True),
        (ValueError("odd"), True),
    ],
)
def test_who_talks_without_tls_is_told_that_it_may_be_wanted(
    broken: Any, may_want_tls: bool, plain: bool
) -> None:
    made, _ = registry(*[refusal(broken) if isinstance(broken, int) else broken] * 4)
    made._http._plain_http = plain
    with pytest.raises(InputError, match="the registry answered") as caught:
        made.tags()
    assert ("--plain-http" in caught.value.hint) == (plain and may_want_tls)


@pytest.mark.parametrize(
    ("tags", "hint"),
    [
        (Answer(b'{"tags": []}'), "it has no tags"),
        (Answer(b'{"tags": null}'), "it has no tags"),
        (Answer(b"[]"), "it has no tags"),
        (Answer(b'{"tags": ["v1"]}'), "there are v1"),
    ],
)
def test_the_tags_that_there_are_instead(tags: Answer, hint: str) -> None:
    made, _ = registry(refusal(404), tags)
    with pytest.raises(InputError, match="has nothing called 'latest'") as caught:
        made.manifest()
    assert caught.value.hint == hint


def test_what_becomes_of_a_tag_that_cannot_be_listed_either() -> None:
    for second, said in ((404, "no such repository"), (500, "no such artifact")):
        made, _ = registry(refusal(404), *[refusal(second)] * 4)
        with pytest.raises(InputError, match=said):
            made.untag()


class Headers(io.BytesIO):
    """An answer whose headers and text are given."""

    def __init__(self, text: bytes = b"{}", **headers: str) -> None:
        super().__init__(text)
        self.headers = headers


def test_tags_end_with_the_last_page() -> None:
    made, opener = registry(Headers(b'{"tags": ["a", 3, "b"]}'))
    assert made.tags() == ["a", "b"]
    assert len(opener.requests) == 1


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Headers(), "the registry names no place to upload to"),
        (ConnectionResetError(104, "Connection reset by peer"), "the transfer broke: Connection"),
        (OSError("odd"), "the transfer broke: odd"),
    ],
)
def test_an_upload_that_goes_nowhere(broken: Any, said: str) -> None:
    made, _ = registry(*[broken] * 16)
    with pytest.raises(OptcError, match=said) as caught:
        made._upload(Blob(digest_of(b"x"), 1, "x"), b"x")
    assert caught.value.where == f"{HOST}/models/a:latest"


def challenged(challenge: str) -> HTTPError:
    headers = Message()
    headers["WWW-Authenticate"] = challenge
    return HTTPError(f"https://{HOST}/v2/", 401, "Unauthorized", headers, io.BytesIO())


def test_a_name_and_password_are_told_where_they_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "basic_credentials", lambda host: "Basic c2VjcmV0")
    made, opener = registry(challenged("Basic realm=x"), Headers(b'{"tags": ["a"]}'))
    assert made.tags() == ["a"]
    assert opener.requests[1].get_header("Authorization") == "Basic c2VjcmV0"


@pytest.mark.parametrize(
    ("challenge", "known"),
    [("Basic realm=x", ""), ('Bearer service="s"', "Basic x"), ("Digest realm=x", "Basic x")],
)
def test_without_what_is_wanted_it_is_refused(
    challenge: str, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "basic_credentials", lambda host: known)
    made, opener = registry(challenged(challenge))
    with pytest.raises(InputError, match="the registry refuses: it wants a name and password"):
        made.tags()
    assert len(opener.requests) == 1
