"""Names that requests may call the server by."""

from __future__ import annotations

import pytest

from optc.serve.guards.hosts import host_name
from optc.serve.settings import LOOPBACK, HTTPSettings
from tests.serve.conftest import MakeApi


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("api.example", 200),
        ("API.example:8000", 200),
        ("evil.example", 403),
        ("api.example.evil", 403),
        ("127.0.0.1", 403),
        ("", 403),
    ],
)
def test_other_names_are_refused(make_api: MakeApi, host: str, status: int) -> None:
    api = make_api(settings=HTTPSettings(hosts=("api.example",), keys=("k",)))
    headers = {"host": host, "authorization": "Bearer k"}
    answer = api.http.get("/v1/models", headers=headers)
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["error"]["type"] == "permission_error"
        assert "--trusted-host" in answer.json()["error"]["message"]
    assert api.http.get("/health", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:80", "localhost"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("", ""),
    ],
)
def test_names_without_ports(host: str, name: str) -> None:
    assert host_name(host) == name


def test_a_server_of_this_machine_has_its_names_alone() -> None:
    assert HTTPSettings().named.hosts == LOOPBACK
    assert HTTPSettings(hosts=("a",)).named.hosts == ("a",)
    for open_door in (HTTPSettings(keys=("k",)), HTTPSettings(host="0.0.0.0")):
        assert open_door.named.hosts == ()
