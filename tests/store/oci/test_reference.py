"""References to layouts and registries."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.errors import InputError
from optc.store.oci.reference import parse_reference

DIGEST = f"sha256:{'ab' * 32}"


@pytest.mark.parametrize(
    ("text", "folder", "version", "name"),
    [
        ("oci:models", "models", "latest", "models"),
        ("oci:/srv/models:v1.2", "/srv/models", "v1.2", "models-v1.2"),
        ("oci:a:b/models", "a:b/models", "latest", "models"),
        (f"oci:models@{DIGEST}", "models", DIGEST, "models"),
    ],
)
def test_layouts(text: str, folder: str, version: str, name: str) -> None:
    found = parse_reference(text, "x")
    assert (found.folder, found.version, found.name) == (Path(folder), version, name)


@pytest.mark.parametrize(
    ("text", "host", "repository", "version", "name"),
    [
        ("ghcr.io/me/pycode:int8", "ghcr.io", "me/pycode", "int8", "pycode-int8"),
        ("localhost/pycode", "localhost", "pycode", "latest", "pycode"),
        ("host:5000/a/b-c_d", "host:5000", "a/b-c_d", "latest", "b-c_d"),
        ("[::1]:5000/a", "[::1]:5000", "a", "latest", "a"),
        (f"ghcr.io/me/pycode@{DIGEST}", "ghcr.io", "me/pycode", DIGEST, "pycode"),
    ],
)
def test_registries(text: str, host: str, repository: str, version: str, name: str) -> None:
    found = parse_reference(text, "x")
    assert found.folder is None
    assert (found.host, found.repository, found.version) == (host, repository, version)
    assert found.name == name


@pytest.mark.parametrize(
    "text", ["", "oci:", "pycode", "me/pycode", "ghcr.io/Me/x", "ghcr.io/x:", "https://ghcr.io/x"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(InputError, match=r"x: .* names no layout or registry \(oci:FOLDER"):
        parse_reference(text, "x")
