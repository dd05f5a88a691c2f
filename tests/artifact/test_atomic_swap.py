from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from optc.artifact import atomic_swap as module
from optc.artifact.atomic_swap import exchange


@pytest.mark.parametrize("by_renames", [False, True])
def test_two_folders_swap_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_renames: bool
) -> None:
    if by_renames:
        monkeypatch.setattr(module, "_renameat2", lambda a, b: False)
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a/file").read_text() == "b"
    assert (tmp_path / "b/file").read_text() == "a"
    assert len(list(tmp_path.iterdir())) == 2


def test_linux_swaps_them_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With relative paths too, which are taken from the working folder."""
    monkeypatch.setattr(module, "_swap_by_renames", lambda a, b: pytest.fail("more than one step"))
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        Path(name).write_text(name)
    exchange(Path("a"), Path("b"))
    assert Path("a").read_text() == "b"


def test_a_c_library_without_the_call_swaps_by_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    for name in "ab":
        (tmp_path / name).write_text(name)
    exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").read_text() == "b"


def test_neither_moves_where_one_is_missing(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with pytest.raises(FileNotFoundError) as caught:
        exchange(tmp_path / "absent", tmp_path / "b")
    assert caught.value.filename == str(tmp_path / "absent")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
