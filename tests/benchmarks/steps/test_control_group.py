"""Processes whose memory a control group limits, and weights that are larger than that."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.steps import control_group
from benchmarks.steps.control_group import NotPermittedError, enter, forget, limited

MIB = 1 << 20
#: Weights, and the memory of a process that reads them all in each of its steps.
WEIGHTS, LIMIT, KEPT = 128 * MIB, 112 * MIB, 16 * MIB
CHILD = """
import hashlib, json, sys
from pathlib import Path
from optc.backends.tvm.streamed.streamed_files import StreamedFiles
from optc.backends.tvm.weights.weights_file import Placed

path, each, count, kept = Path(sys.argv[1]), *map(int, sys.argv[2:])
placed = [Placed(f"w{i}", "uint8", (each,), i * each) for i in range(count)]
files = StreamedFiles(path, path, placed, 0, kept)
sums = []
for step in range(7):
    files.streamer.begin_step()
    found = hashlib.sha256()
    for index in range(count):
        files.streamer.use((index,))
        found.update(files.array(f"w{index}"))
    sums.append(found.hexdigest())
files.streamer.wait()
print(json.dumps({"sums": sums, "kept": files.streamer.hot.bytes}))
files.close()
"""


@pytest.mark.long
def test_weights_of_more_than_the_memory_are_read_right(tmp_path: Path) -> None:
    path, draw = tmp_path / "weights", np.random.default_rng(0)
    whole = hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(WEIGHTS // (8 * MIB)):
            part = draw.integers(0, 256, 8 * MIB, np.uint8).tobytes()
            whole.update(part)
            file.write(part)
    forget(path)
    command = [sys.executable, "-c", CHILD, str(path)]
    command += [str(number) for number in (8 * MIB, WEIGHTS // (8 * MIB), KEPT)]
    try:
        with limited("test", LIMIT) as group:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                preexec_fn=partial(enter, group),
                cwd=Path(__file__).parents[3],
            )
    except NotPermittedError as error:
        pytest.skip(f"no process can be limited here: {error}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["sums"]) == {whole.hexdigest()}
    assert KEPT - 4 * MIB <= found["kept"] <= KEPT


def test_without_groups_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_group, "group_folders", lambda _: [])
    with pytest.raises(NotPermittedError, match="shows no control groups"), limited("test", MIB):
        pass


def test_groups_of_both_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that makes none is left for the one above it; what was made is removed."""
    monkeypatch.setattr(control_group, "group_folders", lambda _: [tmp_path / "a", tmp_path])
    with (
        pytest.raises(NotPermittedError, match="does not give the memory controller"),
        limited("test", MIB),
    ):
        pass
    made = Path.mkdir

    def mkdir(path: Path) -> None:
        made(path)
        (path / "memory.max").write_text("max")

    removed: list[Path] = []
    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", lambda path: removed.append(path))
    with limited("test", MIB) as group:
        assert group.parent == tmp_path
        assert (group / "memory.max").read_text() == str(MIB)
        enter(group)
        assert int((group / "cgroup.procs").read_text()) > 0
        assert not removed
    assert removed == [group]


def test_a_forgotten_file_keeps_its_contents(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"contents")
    forget(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"contents"
