"""Name, password and token of a registry are told to it alone; what it answers is bounded."""

from __future__ import annotations

import io
from email.message import Message
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request

import pytest

from optc.artifact.store.oci.reference import parse_reference
from optc.artifact.store.oci.registry import Registry, _Redirects
from optc.errors import InputError

HOST = "registry.example:5000"


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
    made._opener = opener = Opener(*answers)  # type: ignore[assignment]
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
    made._authorization = "Bearer secret"
    made._open("PUT", url, b"", None)
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
