"""Where PyTorch keeps what it writes during an import."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from optc.importer.private_caches import private_caches

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def test_the_folder_is_private_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    folders: list[Path] = []

    @private_caches()
    def fails() -> None:
        folders.append(Path(os.environ[VARIABLE]))
        assert stat.S_IMODE(folders[0].stat().st_mode) == 0o700
        (folders[0] / "cache").touch()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert not folders[0].exists()
    assert VARIABLE not in os.environ


def test_a_folder_that_the_user_named_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with private_caches():
        assert os.environ[VARIABLE] == str(tmp_path)
    assert tmp_path.exists()
    assert os.environ[VARIABLE] == str(tmp_path)
