"""References to layouts and registries."""

from __future__ import annotations

from dataclasses import replace
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


EXAMPLE = "oci:FOLDER[:TAG] or HOST[:PORT]/REPOSITORY[:TAG]"
REPOSITORY = "lower-case letters and digits, between them one of . _ __ - or /"
NO_PLACE = "names no layout or registry"


@pytest.mark.parametrize(
    ("text", "wrong", "hint"),
    [
        ("", NO_PLACE, EXAMPLE),
        ("pycode", NO_PLACE, "oci:pycode is a layout, HOST/pycode a repository"),
        ("me/pycode:v1", NO_PLACE, "oci:me/pycode:v1 is a layout, HOST/me/pycode:v1 a repository"),
        ("a b/c", NO_PLACE, EXAMPLE),
        ("host:port/c", NO_PLACE, EXAMPLE),
        ("https://ghcr.io/x:v1", NO_PLACE, "without a scheme: ghcr.io/x:v1"),
        ("docker://ghcr.io/x", NO_PLACE, "without a scheme: ghcr.io/x"),
        ("oci://ghcr.io/me/x", NO_PLACE, "without a scheme: ghcr.io/me/x"),
        ("https://ghcr.io/a//b", NO_PLACE, EXAMPLE),
        ("oci:", "names no folder", "a layout is oci:FOLDER[:TAG]"),
        ("oci::v1", "names no folder", "a layout is oci:FOLDER[:TAG]"),
        (f"oci:@{DIGEST}", "names no folder", "a layout is oci:FOLDER[:TAG]"),
        ("oci:a\0b", "names no folder", "a layout is oci:FOLDER[:TAG]"),
        ("ghcr.io/Me/x", "'Me/x' is no", "a repository is lower case: ghcr.io/me/x"),
        ("ghcr.io/me/X:V1", "'me/X' is no", "a repository is lower case: ghcr.io/me/x:V1"),
        (f"host:50/A/b@{DIGEST}", "'A/b'", f"a repository is lower case: host:50/a/b@{DIGEST}"),
        ("ghcr.io/", "'' is no repository", REPOSITORY),
        ("ghcr.io/A//b", "'A//b' is no repository", REPOSITORY),
        ("ghcr.io/a b:v1", "'a b' is no repository", REPOSITORY),
        ("ghcr.io/x:v1/y", "'x:v1/y' is no repository", REPOSITORY),
    ],
)
def test_what_names_no_place_is_answered_with_what_was_meant(
    text: str, wrong: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        parse_reference(text, "x")
    assert caught.value.where == "x"
    assert wrong in caught.value.message
    assert caught.value.hint == hint


@pytest.mark.parametrize("place", ["oci:lay", "oci:/srv/a:b/la y", "ghcr.io/x", "host:50/me/x"])
def test_a_version_that_is_none_is_no_part_of_a_name(place: str) -> None:
    for tag in ("a b", "", "-a", ".a", "v1 ", "v1\n", "ä", "a" * 129, "a+b", "a\0", "*"):
        with pytest.raises(InputError, match="is no tag") as caught:
            parse_reference(f"{place}:{tag}", "x")
        assert repr(tag) in caught.value.message
        assert caught.value.hint.startswith("letters, digits and _ . -, 128 at most")
    for digest in ("v1", "sha256:12", f"{DIGEST}0", DIGEST.upper(), "", "md5:ab", f"{DIGEST}:v1"):
        with pytest.raises(InputError, match="is no digest") as caught:
            parse_reference(f"{place}@{digest}", "x")
        assert caught.value.hint == "a digest is sha256: and 64 digits of 0-9 and a-f"


@pytest.mark.parametrize("place", ["oci:/srv/lay", "ghcr.io/me/x"])
def test_of_a_tag_and_a_digest_the_digest_counts(place: str) -> None:
    found, plain = (parse_reference(f"{place}{tag}@{DIGEST}", "x") for tag in (":v1", ""))
    assert replace(found, text=plain.text) == plain
    with pytest.raises(InputError, match="'a b' is no tag"):
        parse_reference(f"{place}:a b@{DIGEST}", "x")


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
