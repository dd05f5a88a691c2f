"""Temporary folders of killed processes go with the next one of their kind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from optc.system import scratch
from optc.system.scratch import Scratch

ROOT = Path(__file__).parents[2]
HOLD = """
import sys
from optc.system.scratch import Scratch
with Scratch("test") as folder:
    open(folder + "/large", "w").write("a")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))


def test_what_a_killed_process_left_is_removed_and_no_other(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    folders = [Path(p.stdout.readline().strip()) for p in processes if p.stdout]
    (tmp_path / "optc-other-kind").mkdir()
    (tmp_path / "optc-test-new").mkdir()  # whose lock is not there yet
    old = tmp_path / "optc-test-old"
    old.mkdir()
    os.utime(old, (0, 0))
    processes[0].send_signal(signal.SIGKILL)
    processes[0].wait()
    assert all((folder / "large").exists() for folder in folders)
    with Scratch("test") as mine:
        left = {path.name for path in tmp_path.iterdir()}
    assert left == {folders[1].name, Path(mine).name, "optc-other-kind", "optc-test-new"}
    processes[1].communicate("")
    assert not folders[1].exists()
    assert not Path(mine).exists()


def test_links_are_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / ".lock").touch()
    (tmp_path / "optc-test-link").symlink_to(kept)
    with Scratch("test"):
        assert (kept / ".lock").exists()


def test_every_folder_of_ours_is_one_that_goes() -> None:
    named = re.compile(r"(TemporaryDirectory|mkdtemp)\(prefix=.optc-")
    found = [
        str(path)
        for folder in ("optc", "passes", "backends")
        for path in (ROOT / folder).rglob("*.py")
        if named.search(path.read_text())
    ]
    assert found == []
