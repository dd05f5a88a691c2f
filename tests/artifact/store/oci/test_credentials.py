from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.store.oci.credentials import basic_credentials
from optc.errors import InputError

HOST, AUTH = "ghcr.io", "bWU6c2VjcmV0"
KEPT = {"auth": AUTH}


def write(folder: Path, value: object) -> None:
    folder.mkdir()
    text = value if isinstance(value, str) else json.dumps(value)
    (folder / "config.json").write_text(text)


@pytest.mark.parametrize("named", ["home", "variable", "both", "empty"])
def test_where_they_are_looked_up(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DOCKER_CONFIG", raising=False)
    assert basic_credentials(HOST) == ""
    write(tmp_path / ".docker", {"auths": {HOST: KEPT if named in ("home", "empty") else {}}})
    if named in ("variable", "both"):
        write(tmp_path / "mine", {"auths": {HOST: KEPT}})
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "mine"))
    elif named == "empty":
        monkeypatch.setenv("DOCKER_CONFIG", "")
    assert basic_credentials(HOST) == f"Basic {AUTH}"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({}, ""),
        ({"auths": {}}, ""),
        ({"auths": {HOST: {}}}, ""),
        ({"auths": {HOST: KEPT}}, f"Basic {AUTH}"),
        ({"auths": {"docker.io": KEPT}}, ""),
        ({"auths": {HOST: KEPT}, "credsStore": "desktop"}, f"Basic {AUTH}"),
        ({"auths": {HOST: KEPT}, "credHelpers": {HOST: "gcloud"}}, f"Basic {AUTH}"),
        ({"credsStore": "desktop"}, ""),  # which was not asked to keep any of this host
        ({"auths": {"docker.io": {}}, "credsStore": "desktop"}, ""),
        ({"auths": {HOST: {}}, "credsStore": "desktop"}, "in another program"),
        ({"credHelpers": {HOST: "gcloud"}}, "in another program"),
        ({"auths": {HOST: {}}, "credHelpers": {HOST: "gcloud"}}, "in another program"),
        ({"auths": {HOST: {}}, "credHelpers": {"docker.io": "gcloud"}}, ""),
        ("{", "cannot be used"),
        ([], "cannot be used"),
        ({"auths": []}, "cannot be used"),
        ({"auths": {HOST: "x"}}, "cannot be used"),
        ({"auths": {HOST: {"auth": 1}}}, "cannot be used"),
        ({"auths": {HOST: {"auth": "no base 64"}}}, "cannot be used"),
    ],
)
def test_what_a_file_says(
    value: Any, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "docker", value)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    if found in ("", f"Basic {AUTH}"):
        assert basic_credentials(HOST) == found
        return
    with pytest.raises(InputError, match=found) as caught:
        basic_credentials(HOST)
    assert caught.value.where == str(tmp_path / "docker/config.json")
