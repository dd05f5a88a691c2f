"""Paths by names of the manifest. Attacks on whole artifacts are in tests/cli/commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.artifact.files import ArtifactFiles
from optc.artifact.manifest import FileEntry
from optc.errors import ArtifactError
from tests.artifact.toy import toy_engine, write_toy

ENTRY = FileEntry("engines/target/weights.bin", 8, "00" * 32)
FILES = ArtifactFiles(Path("a"), [ENTRY])


def test_listed_files_have_paths() -> None:
    engine = FILES.of_engine(toy_engine())
    assert FILES.path(ENTRY.path, "a test") == Path("a", ENTRY.path)
    assert engine.path("weights.bin") == Path("a", ENTRY.path)
    assert engine.entry("weights.bin", "../target") is ENTRY


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("engine.so", "."),
        ("weights.bin", ".."),
        ("weights.bin", "/engines/target"),
        ("weights.bin", "../../../a/engines/target"),
        ("/etc/passwd", "."),
        ("", "."),
    ],
)
def test_others_have_none(name: str, beside: str) -> None:
    with pytest.raises(ArtifactError, match="which the manifest does not list") as caught:
        FILES.of_engine(toy_engine()).path(name, beside)
    assert caught.value.where == "a/manifest.json"
    assert caught.value.message.startswith("engine 'target' needs the file ")


def test_a_folder_in_an_engines_folder_holds_listed_files_only(tmp_path: Path) -> None:
    artifact = write_toy(tmp_path / "a")
    folder = artifact.path / "engines/target"
    (folder / "empty").mkdir()
    artifact.files.check(artifact.manifest)
    (folder / "more").symlink_to("/tmp")
    with pytest.raises(ArtifactError, match="does not list this file") as caught:
        artifact.files.check(artifact.manifest)
    assert caught.value.where == str(folder / "more")
    (folder / "more").unlink()
    (folder / "empty/x").write_text("")
    with pytest.raises(ArtifactError, match="does not list this file") as caught:
        artifact.files.check(artifact.manifest)
    assert caught.value.where == str(folder / "empty/x")
