"""References to layouts and registries."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.artifact.store.oci.reference import parse_reference
from optc.errors import InputError

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
    ("text", "hint"),
    [
        ("", "oci:FOLDER[:TAG] or HOST[:PORT]/REPOSITORY[:TAG]"),
        ("oci:", "a layout is oci:FOLDER[:TAG]"),
        ("pycode", "oci:pycode is a layout, HOST/pycode a repository"),
        ("me/pycode:v1", "oci:me/pycode:v1 is a layout, HOST/me/pycode:v1 a repository"),
        ("ghcr.io/Me/x", "a repository is lower case: ghcr.io/me/x"),
        ("ghcr.io/me/X:V1", "a repository is lower case: ghcr.io/me/x:V1"),
        (f"host:5000/A/b@{DIGEST}", f"a repository is lower case: host:5000/a/b@{DIGEST}"),
        ("ghcr.io/x:", "a tag is made of letters, digits"),
        ("ghcr.io/x:-a", "a tag is made of letters, digits"),
        (f"ghcr.io/x:{'a' * 129}", "a tag is made of letters, digits and _ . -, 128 at most"),
        ("ghcr.io/x:v1/y", "oci:FOLDER[:TAG] or HOST[:PORT]/REPOSITORY[:TAG]"),
        ("https://ghcr.io/x:v1", "without a scheme: ghcr.io/x:v1"),
        ("docker://ghcr.io/x", "without a scheme: ghcr.io/x"),
        ("oci://ghcr.io/me/x", "without a scheme: ghcr.io/me/x"),
        ("ghcr.io/x@sha256:12", "a digest is sha256: and 64 digits"),
        ("ghcr.io/x@v1", "a digest is sha256: and 64 digits"),
        ("https://ghcr.io/a//b", "oci:FOLDER[:TAG] or HOST[:PORT]/REPOSITORY[:TAG]"),
        ("ghcr.io/A//b", "oci:FOLDER[:TAG] or HOST[:PORT]/REPOSITORY[:TAG]"),
        ("ghcr.io/a//b", "oci:FOLDER[:TAG] or HOST[:PORT]/REPOSITORY[:TAG]"),
    ],
)
def test_what_names_no_place_is_answered_with_what_was_meant(text: str, hint: str) -> None:
    with pytest.raises(InputError, match=r"x: .* names no layout or registry") as caught:
        parse_reference(text, "x")
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci:models", "oci:models:v2"),
        ("oci:latest", "oci:latest:v2"),
        ("oci:a:b/models:v1", "oci:a:b/models:v2"),
        ("ghcr.io/me/x", "ghcr.io/me/x:v2"),
        ("host:5000/x:latest", "host:5000/x:v2"),
        (f"host:5000/x@{DIGEST}", "host:5000/x:v2"),
    ],
)
def test_another_tag_of_the_same_place(text: str, expected: str) -> None:
    found = parse_reference(text, "x").tagged("v2", "TAG")
    assert found.text == expected
    assert found == parse_reference(expected, "x")
    with pytest.raises(InputError, match=r"TAG: 'a/b' is no tag \(letters, digits"):
        found.tagged("a/b", "TAG")
