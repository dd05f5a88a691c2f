"""optc patch and optc apply, and what sign and verify make of a patch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.artifact.patches.test_patches import another, contents
from tests.artifact.toy import WEIGHTS, write_toy
from tests.artifact.trust.keys import write_keys
from tests.cli.conftest import Optc


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path, Path, Path]:
    """An old artifact, a new one, a place for a patch, and one for what it gives."""
    old, new = write_toy(tmp_path / "old"), another(tmp_path / "new", WEIGHTS[::-1])
    return old.path, new.path, tmp_path / "patch", tmp_path / "made"


def test_made_signed_verified_applied(
    optc: Optc, places: tuple[Path, Path, Path, Path], tmp_path: Path
) -> None:
    old, new, patch, made = places
    private, public = write_keys(tmp_path)
    optc("sign", new, "--key", private)
    value = optc("patch", old, new, "-o", patch, "--json").json
    assert value["of_bytes"] > value["bytes"] >= len(WEIGHTS)
    signed = optc("sign", patch, "--key", private, "--json").json
    assert (signed["digest"], signed["signature"]["files"]) == (value["digest"], 2)
    found = optc("verify", patch, "--key", public, "--json").json
    assert (found["digest"], found["signature"]) == (value["digest"], signed["signature"])
    assert "2 files signed by the key" in optc("verify", patch, "--key", public).out
    given = optc("apply", patch, old, "-o", made, "--key", public, "--json").json
    assert given["digest"] == value["result"]
    assert contents(made) == contents(new)
    assert optc("verify", made, "--key", public).code == 0, "the new one's own signature"


def test_what_is_said(optc: Optc, places: tuple[Path, Path, Path, Path]) -> None:
    old, new, patch, made = places
    text = optc("patch", old, new, "-o", patch).out
    assert text.startswith(f"{patch}: ")
    assert "differ\nfrom " in text
    assert optc("verify", patch).out.startswith(f"{patch}: ")
    assert "5 files, all as in the patched artifact" in optc("apply", patch, old, "-o", made).out


def test_refusals(optc: Optc, places: tuple[Path, Path, Path, Path], tmp_path: Path) -> None:
    old, new, patch, made = places
    _, public = write_keys(tmp_path)
    optc("patch", old, new, "-o", patch)
    refused: list[tuple[tuple[object, ...], int, str]] = [
        (("apply", patch, new, "-o", made), 2, "the patch is for the artifact"),
        (("apply", patch, old, "-o", made, "--key", public), 5, "is not signed"),
        (("apply", old, old, "-o", made), 2, "holds no patch.json"),
        (("patch", old, old, "-o", made), 2, "is the same artifact"),
    ]
    for arguments, code, message in refused:
        found = optc(*arguments)
        assert (found.code, message in found.err) == (code, True), found.err
    changes = patch / "changes.bin"
    changes.write_bytes(changes.read_bytes()[::-1])
    damaged: list[tuple[object, ...]] = [("apply", patch, old, "-o", made), ("verify", patch)]
    for arguments in damaged:
        found = optc(*arguments)
        assert (found.code, "corrupted" in found.err) == (5, True), found.err
    assert not made.exists()
