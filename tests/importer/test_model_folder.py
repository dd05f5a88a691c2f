"""Folders of models, those of the Hugging Face cache too, and what models are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.errors import InputError
from optc.importer.model_folder import model_folder, model_name


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """A model's root in the cache, with two snapshots."""
    root = tmp_path / "models--acme--tiny--v2"
    for commit in ("abc123", "def456"):
        (root / "snapshots" / commit).mkdir(parents=True)
        (root / "snapshots" / commit / "config.json").write_text("{}")
    (root / "refs").mkdir()
    (root / "refs/main").write_text("def456\n")
    return root


def test_a_root_of_the_cache_is_its_main_branch(cached: Path) -> None:
    assert model_folder(cached) == cached / "snapshots/def456"
    assert model_folder(cached / "snapshots/abc123") == cached / "snapshots/abc123"


@pytest.mark.parametrize("main", ["../../evil", "..", "", "fff"])
def test_a_main_branch_that_is_not_there(main: str, cached: Path) -> None:
    (cached / "refs/main").write_text(main)
    with pytest.raises(InputError, match="main branch is not there") as caught:
        model_folder(cached)
    assert caught.value.where == str(cached)
    assert str(cached / "snapshots/abc123") in caught.value.hint


def test_the_only_snapshot_needs_no_branch(cached: Path) -> None:
    (cached / "refs/main").unlink()
    (cached / "snapshots/def456/config.json").unlink()
    (cached / "snapshots/def456").rmdir()
    assert model_folder(cached) == cached / "snapshots/abc123"
    (cached / "snapshots/abc123/config.json").unlink()
    (cached / "snapshots/abc123").rmdir()
    with pytest.raises(InputError, match="download it again"):
        model_folder(cached)


def test_other_folders_are_themselves(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert model_folder(tmp_path) == tmp_path
    assert model_folder(tmp_path / "absent") == tmp_path / "absent"


def test_names(cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model_name(cached / "snapshots/abc123") == "acme/tiny--v2"
    assert model_name(tmp_path / "models--gpt2/snapshots/abc") == "gpt2"
    assert model_name(tmp_path / "snapshots/abc123") == "abc123"
    (tmp_path / "m 1").mkdir()
    (tmp_path / "link").symlink_to("m 1")
    assert model_name(tmp_path / "link") == "link"
    monkeypatch.chdir(cached / "snapshots/def456")
    assert model_name(Path()) == "acme/tiny--v2"
