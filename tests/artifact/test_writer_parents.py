"""Folders above an artifact: made where they are missing, and removed if nothing came of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from optc.artifact.artifact import Artifact
from optc.artifact.writer import ArtifactWriter
from optc.errors import InputError
from tests.artifact.test_writer import enter, fail_inside, names
from tests.artifact.toy import toy_manifest, write_files, write_toy


def test_missing_parents_are_made_and_removed_again_on_failure(tmp_path: Path) -> None:
    write_toy(tmp_path / "x/y/a")
    assert Artifact.open(tmp_path / "x/y/a")
    with pytest.raises(RuntimeError, match="anything"):
        fail_inside(tmp_path / "p/q/a", RuntimeError("anything"))
    assert names(tmp_path) == ["x"]


def test_parents_that_others_use_stay(tmp_path: Path) -> None:
    def use() -> None:
        (tmp_path / "p/theirs").write_text("")

    with pytest.raises(RuntimeError, match="anything"):
        fail_inside(tmp_path / "p/q/a", RuntimeError("anything"), meanwhile=use)
    assert names(tmp_path / "p") == ["theirs"]


def test_parents_that_others_removed_do_not_hide_the_error(tmp_path: Path) -> None:
    def remove() -> None:
        shutil.rmtree(tmp_path / "p")

    with pytest.raises(RuntimeError, match="anything"):
        fail_inside(tmp_path / "p/a", RuntimeError("anything"), meanwhile=remove)


@pytest.mark.parametrize("a_file", [False, True])
def test_parents_that_others_make_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, a_file: bool
) -> None:
    """They are theirs, and stay; below a file nothing can be written."""
    mkdir = Path.mkdir

    def others_first(self: Path, *args: int, **kwargs: bool) -> None:
        if self.name == "p":
            self.touch() if a_file else os.mkdir(self)
        mkdir(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", others_first)
    if a_file:
        with pytest.raises(InputError, match="a part of the path is a file"):
            enter(tmp_path / "p/a")
    else:
        enter(tmp_path / "p/a")
    assert names(tmp_path) == ["p"]


@pytest.mark.parametrize("failed", [False, True])
def test_folders_made_for_what_was_written_are_no_longer_removed(
    tmp_path: Path, failed: bool
) -> None:
    with ArtifactWriter(tmp_path / "x/a") as writer:
        write_files(writer)
        manifest = toy_manifest(writer.hashed_files())
        path = writer.keep_failed(manifest, {}) if failed else writer.commit(manifest, {}).path
        path.rename(tmp_path / "elsewhere")  # the user is faster than the end of the work
    assert names(tmp_path) == ["elsewhere", "x"]
