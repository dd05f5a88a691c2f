from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from optc.artifact import atomic_swap
from optc.artifact.artifact import Artifact
from optc.artifact.manifest import FileEntry
from optc.artifact.trust.texts import trust_texts
from optc.artifact.writer import ArtifactWriter
from optc.errors import InputError
from optc.system.hardware.target import parse_target
from tests.artifact.toy import toy_engine, toy_manifest, write_files, write_toy


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def fail_inside(
    output: Path,
    error: BaseException,
    *,
    force: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """An artifact half written when ``error`` ends the work; others do something before that."""
    with ArtifactWriter(output, force=force) as writer:
        write_files(writer)
        assert writer.folder.is_dir()
        meanwhile()
        raise error


def enter(output: Path, *, force: bool = False) -> None:
    """Begin to write, and stop."""
    with ArtifactWriter(output, force=force):
        pass


def test_two_writes_of_the_same_input_are_byte_identical(tmp_path: Path) -> None:
    a, b = write_toy(tmp_path / "a"), write_toy(tmp_path / "b")
    assert (a.path / "manifest.json").read_bytes() == (b.path / "manifest.json").read_bytes()
    assert a.digest == b.digest
    assert a.report() == {"seconds": 1.5}
    for name, text in trust_texts(a.manifest, a.report()).items():
        assert (a.path / name).read_bytes() == text
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EIO, os.strerror(errno.EIO), "file"), "Input/output error"),
        (OSError("odd"), "odd"),
    ],
)
def test_a_move_that_fails_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: bool, error: OSError, reason: str
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise error

    with ArtifactWriter(tmp_path / "a") as writer:
        manifest = toy_manifest(writer.hashed_files())
        monkeypatch.setattr(Path, "rename", refuse)
        with pytest.raises(InputError, match=f"cannot be written: {reason} ") as caught:
            (writer.keep_failed if failed else writer.commit)(manifest, {})
    assert caught.value.where == str(tmp_path / "a")
    assert names(tmp_path) == []


def write_twins(writer: ArtifactWriter) -> tuple[FileEntry, ...]:
    folder = writer.subfolder("engines")
    for name, contents in (("a", b"one"), ("b", b"other"), ("c", b"one"), ("d", b"one")):
        (folder / name).write_bytes(contents)
    return writer.hashed_files()


def test_equal_files_are_stored_once(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "a") as writer:
        files = write_twins(writer)
        for _ in range(2):  # the second time they are one file already
            assert writer.store_once(files) == 0
            a, b, c, d = sorted((writer.folder / "engines").iterdir())
            assert a.samefile(c)
            assert a.samefile(d)
            assert not a.samefile(b)
        assert writer.hashed_files() == files


def test_equal_files_stay_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with ArtifactWriter(tmp_path / "a") as writer:
        files = write_twins(writer)
        assert writer.store_once(files) == 2 * len(b"one")
        assert writer.hashed_files() == files


def test_the_room_that_is_left_is_of_the_file_system(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "a") as writer:
        assert 0 < writer.free_bytes() <= shutil.disk_usage(tmp_path).total


def test_existing_output_needs_force(tmp_path: Path) -> None:
    old = write_toy(tmp_path / "a")
    with pytest.raises(InputError, match="already exists") as caught:
        enter(old.path)
    assert caught.value.hint == "--force replaces it, -o names another"
    assert Artifact.open(old.path) == old
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("by_renames", [False, True])
def test_force_replaces_only_when_the_new_one_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_renames: bool
) -> None:
    if by_renames:  # a file system without the exchange in one step
        monkeypatch.setattr(atomic_swap, "_renameat2", lambda a, b: False)
    old = write_toy(tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        fail_inside(old.path, KeyboardInterrupt(), force=True)
    assert Artifact.open(old.path) == old
    new = write_toy(
        tmp_path / "a", toy_engine("target", parse_target("x86-64-v4-vnni")), force=True
    )
    assert Artifact.open(tmp_path / "a") == new != old
    assert names(tmp_path) == ["a"]


def test_force_never_replaces_what_is_no_artifact(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter1.txt").write_text("precious")
    with pytest.raises(InputError, match="exists and is no artifact"):
        enter(tmp_path / "thesis", force=True)
    assert (tmp_path / "thesis/chapter1.txt").read_text() == "precious"


def test_output_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "a") as writer:
        write_files(writer)
        write_toy(tmp_path / "a2").path.rename(tmp_path / "a")
        with pytest.raises(InputError, match="already exists"):
            writer.commit(toy_manifest(writer.hashed_files()), {})
    assert Artifact.open(tmp_path / "a")
    assert names(tmp_path) == ["a"]


def test_output_below_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(InputError, match="cannot be written: a part of the path is a file"):
        enter(tmp_path / "f/a")
    assert names(tmp_path) == ["f"]


def test_unwritable_parent_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests may run as root, for whom permissions do not hold: the error is the kernel's.
    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(InputError, match="cannot be written: permission denied") as caught:
        enter(tmp_path / "a")
    assert caught.value.where == str(tmp_path / "a")
    assert names(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_leaves_nothing_and_loses_nothing(tmp_path: Path, number: int) -> None:
    old = write_toy(tmp_path / "a")
    wrapped = RuntimeError("serialization failed")  # as a library would wrap it
    wrapped.__cause__ = OSError(number, os.strerror(number))
    with pytest.raises(InputError, match=r"cannot be written: the disk") as caught:
        fail_inside(old.path, wrapped, force=True)
    assert "free space" in caught.value.hint
    assert Artifact.open(old.path) == old
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_full_disk_of_temporary_files_is_named(tmp_path: Path, number: int) -> None:
    elsewhere = tmp_path / "temporary" / "optc-hidden-1" / "hidden"
    with pytest.raises(InputError, match="cannot be written") as caught:
        fail_inside(tmp_path / "out" / "a", OSError(number, "full", str(elsewhere)))
    assert caught.value.where == str(elsewhere.parent)
    assert "TMPDIR" in caught.value.hint
    inside = OSError(number, "full", str(tmp_path / "out" / ".a.partial-1" / "weights"))
    with pytest.raises(InputError, match="cannot be written") as caught:
        fail_inside(tmp_path / "out" / "a", inside)
    assert caught.value.where == str(tmp_path / "out" / "a")


def test_the_root_is_no_place_for_an_artifact() -> None:
    for root in ("/", "/.."):
        with pytest.raises(InputError, match="is the root of the file system"):
            ArtifactWriter(root, force=True)


def test_errors_that_cause_each_other_end(tmp_path: Path) -> None:
    error, other = RuntimeError("anything"), RuntimeError("other")
    error.__cause__, other.__cause__ = other, error
    with pytest.raises(RuntimeError, match="anything"):
        fail_inside(tmp_path / "a", error)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_really_full_device_is_recognized(tmp_path: Path) -> None:
    def fill() -> None:
        with ArtifactWriter(tmp_path / "a"), Path("/dev/full").open("wb", buffering=0) as stream:
            stream.write(b"x")

    with pytest.raises(InputError, match="the disk is full"):
        fill()
    assert names(tmp_path) == []


def test_keep_failed_moves_the_folder_aside(tmp_path: Path) -> None:
    for _ in range(2):  # a second failure replaces the first one
        with ArtifactWriter(tmp_path / "a") as writer:
            write_files(writer)
            kept = writer.keep_failed(toy_manifest(writer.hashed_files()), {})
        assert kept == tmp_path / "a.failed"
    assert names(tmp_path) == ["a.failed"]
    assert Artifact.open(kept)


def test_keep_failed_replaces_nothing_but_artifacts(tmp_path: Path) -> None:
    (tmp_path / "a.failed").mkdir()
    (tmp_path / "a.failed/notes").write_text("mine")
    (tmp_path / "a.failed-2").write_text("mine, too")
    for _ in range(2):
        with ArtifactWriter(tmp_path / "a") as writer:
            write_files(writer)
            kept = writer.keep_failed(toy_manifest(writer.hashed_files()), {})
        assert kept == tmp_path / "a.failed-3"
    assert Artifact.open(kept)
    assert names(tmp_path) == ["a.failed", "a.failed-2", "a.failed-3"]
    assert (tmp_path / "a.failed/notes").read_text() == "mine"


def test_force_replaces_no_folder_of_another_manifest(tmp_path: Path) -> None:
    web = tmp_path / "web"
    web.mkdir()
    (web / "manifest.json").write_text('{"name": "an application", "icons": []}')
    with pytest.raises(InputError, match="is no artifact; not replaced"):
        enter(web, force=True)
    assert names(web) == ["manifest.json"]


def test_sigterm_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import signal, sys, time
        from optc.cli import main
        from optc.artifact.writer import ArtifactWriter
        signal.signal(signal.SIGTERM, main._terminate)
        with ArtifactWriter({str(tmp_path / "x/a")!r}) as writer:
            writer.subfolder("engines")
            print("ready", flush=True)
            time.sleep(60)
        """
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    assert names(tmp_path) == ["x"]
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=30) == 143
    child.stdout.close()
    assert names(tmp_path) == []


def test_symlinked_output_replaces_what_it_points_to(tmp_path: Path) -> None:
    write_toy(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    new = write_toy(tmp_path / "link", force=True)
    assert new.path == tmp_path / "link"
    assert (tmp_path / "link").is_symlink()
    assert Artifact.open(tmp_path / "real").manifest == new.manifest
    shutil.rmtree(tmp_path / "real")


def test_an_attempt_writes_into_a_folder_of_its_own(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "a") as writer, writer.scratch() as scratch:
        attempt = writer.in_folder(scratch / "attempt")
        assert attempt.folder.is_dir()
        with pytest.raises(FileExistsError):
            writer.in_folder(scratch / "attempt")
        write_files(attempt)
        assert names(writer.folder) == []
        assert attempt.output == writer.output
        assert attempt.hashed_files()
        for path in attempt.folder.iterdir():
            path.rename(writer.folder / path.name)
        writer.commit(toy_manifest(writer.hashed_files()), {})
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_a_folder_on_the_way_that_cannot_be_made_is_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(self: Path, *arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    for output in (tmp_path / "a", tmp_path / "x/a", tmp_path / "x/y/a"):
        with pytest.raises(InputError, match="cannot be written") as caught:
            enter(output)
        assert caught.value.where == str(output)
        assert "-o" in caught.value.hint
