"""Registries that fail midway: a transfer goes on or ends cleanly; nobody else is told who asks."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request

import pytest

from optc.artifact.artifact import Artifact
from optc.artifact.store.oci import connection
from optc.artifact.store.oci.connection import Connection
from optc.artifact.store.oci.reference import parse_reference
from optc.artifact.store.oci.transfer import open_place, pull, push
from optc.errors import InputError, OptcError, UnavailableError
from tests.artifact.store.oci.test_transfer import contents, log_in
from tests.artifact.store.registry import StandIn, running
from tests.artifact.toy import write_toy


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were waited for; none really are."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


@pytest.fixture
def registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> Iterator[StandIn]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("no_proxy", "*")
    with running() as found:
        yield found


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return write_toy(tmp_path / "a")


def text_of(registry: StandIn) -> str:
    return f"{registry.host}/me/model:v1"


def place_of(registry: StandIn) -> Any:
    return open_place(parse_reference(text_of(registry), "x"), plain_http=True)


@pytest.mark.parametrize("ranges", [False, True])
@pytest.mark.parametrize(
    "faults", [["3"], ["0"], ["3", "2", "0", "1"], [500], [503, "2", 502], ["1"] * 9]
)
def test_a_pull_goes_on(
    artifact: Artifact, registry: StandIn, tmp_path: Path, faults: list[int | str], ranges: bool
) -> None:
    push(artifact, place_of(registry))
    registry.faults, registry.ranges = faults, ranges
    told: list[tuple[str, int, int]] = []
    if not ranges and len(faults) > 4:  # it begins anew each time, and comes no further
        with pytest.raises(UnavailableError, match=r"the transfer broke: .* bytes did not come"):
            pull(place_of(registry), tmp_path / "b", "x")
        assert not (tmp_path / "b").exists()
        return
    pull(place_of(registry), tmp_path / "b", "x", progress=lambda *one: told.append(one))
    assert contents(tmp_path / "b") == contents(artifact.path)
    assert told[-1][1] == told[-1][2]


@pytest.mark.parametrize("at", [("POST", "/uploads/"), ("PUT", "/upload/"), ("PUT", "/manifests/")])
@pytest.mark.parametrize("fault", [429, 500, 503, "0"])
def test_a_push_goes_on(
    artifact: Artifact,
    registry: StandIn,
    tmp_path: Path,
    waits: list[float],
    at: tuple[str, str],
    fault: int | str,
) -> None:
    registry.at, registry.faults = at, [fault, fault]
    told: list[tuple[str, int, int]] = []
    push(artifact, place_of(registry), lambda *one: told.append(one))
    assert not registry.faults
    assert told[-1][1] == told[-1][2]
    pull(place_of(registry), tmp_path / "b", "x")
    assert contents(tmp_path / "b") == contents(artifact.path)
    assert waits == ([7.0, 7.0] if fault in (429, 503) else [0.5, 1.0])


@pytest.mark.parametrize("fault", [500, "0", 403])
def test_what_does_not_pass_ends_cleanly(
    artifact: Artifact, registry: StandIn, tmp_path: Path, fault: int | str
) -> None:
    push(artifact, place_of(registry))
    kept = write_toy(tmp_path / "b").digest
    registry.faults = [fault] * 9
    with pytest.raises(OptcError):
        pull(place_of(registry), tmp_path / "b", "x", force=True)
    assert len(registry.faults) == (8 if fault == 403 else 5)
    assert Artifact.open(tmp_path / "b").digest == kept
    assert sorted(one.name for one in tmp_path.iterdir() if one.is_dir()) == ["a", "b"]


def test_who_is_to_wait_for_long_is_told_so(waits: list[float]) -> None:
    headers = Message()
    headers["Retry-After"] = "3600"
    made = Connection(parse_reference("host.example/a", "x"), plain_http=False)
    asked: list[object] = []

    class Opener:
        def open(self, request: object, timeout: float) -> object:
            asked.append(request)
            raise HTTPError(made.base, 429, "Too Many Requests", headers, io.BytesIO())

    made._opener = Opener()  # type: ignore[assignment]
    told = r"HTTP 429 .* \(it asks to wait for 3600 s\)"
    with pytest.raises(InputError, match=told), made.call("GET", made.base):
        pass
    assert (len(asked), waits) == (1, [])


@pytest.mark.parametrize("at", ["push", "pull"])
def test_a_token_that_expires_midway_is_renewed(
    artifact: Artifact, registry: StandIn, tmp_path: Path, at: str
) -> None:
    registry.bearer = True
    log_in(tmp_path, registry.host)
    place = place_of(registry)
    moved = 0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal moved
        moved += 1
        registry.expired = registry.expired or (stage == at and moved in (1, 6))

    push(artifact, place, progress)
    moved = 0
    pull(place, tmp_path / "b", "x", progress=progress)
    assert contents(tmp_path / "b") == contents(artifact.path)


@pytest.mark.parametrize(
    ("answering", "realm"),
    [
        ("https://elsewhere.example/blob", "https://elsewhere.example/token"),
        ("http://host.example/v2/", "https://host.example/token"),
        ("https://host.example/v2/", "http://host.example/token"),
        ("https://host.example/v2/", "file:///etc/passwd"),
    ],
)
def test_nobody_else_is_told_the_password(
    monkeypatch: pytest.MonkeyPatch, answering: str, realm: str
) -> None:
    monkeypatch.setattr(connection, "basic_credentials", lambda host: "Basic c2VjcmV0")
    headers = Message()
    headers["WWW-Authenticate"] = f'Bearer realm="{realm}",service="s"'
    made = Connection(parse_reference("host.example/a", "x"), plain_http=False)
    asked: list[str] = []

    class Opener:
        def open(self, request: Any, timeout: float) -> object:
            asked.append(request.full_url)
            raise HTTPError(answering, 401, "Unauthorized", headers, io.BytesIO())

    made._opener = Opener()  # type: ignore[assignment]
    with pytest.raises(InputError, match="the registry refuses"), made.call("GET", made.base):
        pass
    assert asked == [made.base], "where the password would have gone"


@pytest.mark.parametrize("url", ["http://host.example/v2/a", "https://host.example:444/v2/a"])
def test_another_scheme_or_port_is_another_place(url: str) -> None:
    made = Connection(parse_reference("host.example/a", "x"), plain_http=False)
    made._authorization = "Bearer secret"
    seen: list[Any] = []

    class Opener:
        def open(self, request: Any, timeout: float) -> object:
            seen.append(request)
            return io.BytesIO()

    made._opener = Opener()  # type: ignore[assignment]
    made._open("GET", url, None, None)
    request = seen[0]
    assert not request.has_header("Authorization")
    request.add_header("Authorization", "Bearer secret")
    again = connection._Redirects().redirect_request(
        request, io.BytesIO(), 307, "", Message(), "https://host.example/v2/a"
    )
    assert again is not None
    assert not again.has_header("Authorization")


def test_no_redirect_leads_out_of_http() -> None:
    request = Request("https://host.example/a")
    for url in ("ftp://host.example/a", "file:///etc/passwd"):
        found = connection._Redirects().redirect_request(
            request, io.BytesIO(), 302, "", Message(), url
        )
        assert found is None
