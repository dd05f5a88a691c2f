from __future__ import annotations

from pathlib import Path

import pytest

from optc.artifact import exchange as module
from optc.artifact.exchange import exchange


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


def test_neither_moves_where_one_is_missing(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "absent", tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
