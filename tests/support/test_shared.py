"""The folder that workers share is filled once, and again if that failed."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from tests.support.shared import made_once


def test_it_is_made_once_however_many_ask(tmp_path_factory: pytest.TempPathFactory) -> None:
    made: list[Path] = []
    found: list[int] = []

    def make(folder: Path) -> int:
        assert folder.is_dir()
        time.sleep(0.01)  # the others arrive meanwhile
        made.append(folder)
        return len(made)

    def ask() -> None:
        found.append(made_once(tmp_path_factory, f"once-{os.getpid()}", make))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1, 1, 1, 1]
    assert len(made) == 1


def test_what_failed_is_made_again_in_an_empty_folder(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    name = f"failing-{os.getpid()}"

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        made_once(tmp_path_factory, name, fail)
    assert made_once(tmp_path_factory, name, lambda folder: list(folder.iterdir())) == []
