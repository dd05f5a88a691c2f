"""Which tests `make check` runs for what has changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import changed


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit with a module and its test; then both kinds of changes."""
    for name in ("optc/a/b.py", "passes/c.py", "tests/a/test_b.py", "tests/test_c.py", "notes.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    git = ("git", "-c", "user.name=n", "-c", "user.email=e@example.org")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one")):
        subprocess.run((*git, *command), cwd=tmp_path, check=True)
    return tmp_path


def test_nothing_changed(repository: Path) -> None:
    assert changed.changed_paths(repository, "HEAD") == []


def test_changed_and_new_files_count_and_deleted_ones_do_not(repository: Path) -> None:
    (repository / "optc/a/b.py").write_text("x = 2\n")
    (repository / "tests/test_new.py").write_text("")
    (repository / "passes/c.py").unlink()
    paths = changed.changed_paths(repository, "HEAD")
    assert sorted(paths) == ["optc/a/b.py", "tests/test_new.py"]
    assert changed.tests_for(repository, paths) == ["tests/a/test_b.py", "tests/test_new.py"]


def test_modules_without_tests_and_other_files_give_none(repository: Path) -> None:
    paths = ["optc/none.py", "notes.md", "tests/helper.py", "passes/c.py", "tests/test_c.py"]
    assert changed.tests_for(repository, paths) == ["tests/test_c.py"]


def test_an_unknown_commit_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert changed.main(["no-such-commit"]) == 2
    assert "no-such-commit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("benchmarks/soak/__main__.py", "tests/benchmarks/test_soak.py"),
        ("benchmarks/soak/traffic.py", "tests/benchmarks/test_soak.py"),
        ("benchmarks/inputs/grow_model.py", "tests/benchmarks/inputs/test_grow_model.py"),
        ("benchmarks/inputs/shards.py", "tests/benchmarks/inputs/test_grow_model.py"),
    ],
)
def test_benchmarks_that_have_tests(module: str, test: str) -> None:
    assert (changed.ROOT / module).is_file()
    assert changed.tests_for(changed.ROOT, [module]) == [test]
