"""Files that are written whole or not at all, wherever a command writes one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from optc.artifact.artifact import Artifact
from optc.artifact.store.oci.layout import Layout
from optc.artifact.store.oci.reference import parse_reference
from optc.artifact.trust import sign
from optc.cli.batch.answers_file import AnswersFile
from optc.cli.files.output_file import write_output
from optc.cli.generating.messages import write_messages
from optc.cli.inputs import images_run, tensors_run
from optc.cli.judged.options import SummaryFiles
from optc.compiling.judging.verify_gates import keep_verdicts
from optc.proof.conditions.summary import Summary
from optc.system.whole_file import whole_file, write_whole
from tests.artifact.toy import write_toy


def _half(self: Path, data: bytes) -> int:
    """As on a disk that has room for half of it."""
    with self.open("wb") as file:
        file.write(data[: len(data) // 2])
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_is_there_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o640)
    with whole_file(path) as file:
        file.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640

    def interrupted() -> None:
        with whole_file(path) as file:
            file.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (path.read_text(), os.listdir(tmp_path)) == ("new", ["a"])


def test_a_link_leads_where_it_led(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to/a").write_text("old")
    (tmp_path / "link").symlink_to("to/a")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "to/a").read_text() == "new"
    assert os.listdir(tmp_path / "to") == ["a"]


@pytest.mark.parametrize("name", ["a" * 255, "ä" * 127, "a\nb%s"])
def test_names_of_any_length(tmp_path: Path, name: str) -> None:
    write_whole(tmp_path / name, b"x")
    assert os.listdir(tmp_path) == [name]


def test_what_is_no_file_is_written_itself() -> None:
    write_whole(Path("/dev/null"), b"x")
    assert not Path("/dev/null").is_file()


def _sign(path: Path) -> None:
    sign._replace(path, b"new" * 9)


def _layout(path: Path) -> None:
    reference = parse_reference(f"oci:{path.parent}", "x")
    Layout(reference, path.parent)._write_index([])


def _tensors(path: Path) -> None:
    tensors_run._write(path, {"y": np.zeros(9)})


def _image(path: Path) -> None:
    images_run._write(path, np.zeros((4, 4, 3), np.uint8))


def _messages(path: Path) -> None:
    write_messages(path, [{"role": "user", "content": "new"}])


#: By the name of the file, who writes it.
WRITERS: dict[str, Callable[[Path], object]] = {
    "model.sig": _sign,
    "index.json": _layout,
    "y.npz": _tensors,
    "picture.png": _image,
    "chat.json": _messages,
    "page.html": lambda path: write_output(path, "new" * 9),
    "d.md": lambda path: SummaryFiles(path, None).write(Summary("t")),
}


def _refuses(self: Path, target: Path) -> Path:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("old", [None, b'[{"role": "user", "content": "old"}]'])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, old: bytes | None
) -> None:
    pytest.importorskip("PIL")
    path = tmp_path / name
    if old is not None:
        path.write_bytes(old if name != "index.json" else b'{"manifests": []}')
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    for attribute, failing in (("write_bytes", _half), ("replace", _refuses)):
        with monkeypatch.context() as patched:
            patched.setattr(Path, attribute, failing)
            if attribute == "write_bytes" and name in ("y.npz", "picture.png"):
                continue  # which libraries write
            with pytest.raises(Exception, match=r"No space left on device"):
                WRITERS[name](path)
        assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before


def test_verdicts_and_resumed_runs_leave_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact: Artifact = write_toy(tmp_path / "a")
    before = sorted(one.name for one in artifact.path.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", _half)
        (warning,) = keep_verdicts(artifact, [], [])
        assert "No space left on device" in warning
        with pytest.raises(Exception, match="No space left on device"):
            AnswersFile(tmp_path / "out.jsonl", {})
    assert sorted(one.name for one in artifact.path.iterdir()) == before
    assert not list(tmp_path.glob(".*partial*"))
