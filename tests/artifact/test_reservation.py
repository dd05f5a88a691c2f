from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from optc.artifact import reservation
from optc.artifact.reservation import HeldError, Reservation, left_behind
from optc.artifact.store.oci.reference import parse_reference
from optc.artifact.store.oci.transfer import open_place, pull, push
from optc.artifact.writer import ArtifactWriter
from optc.errors import InputError
from tests.artifact.test_writer import enter, names
from tests.artifact.toy import toy_manifest, write_files, write_toy


@contextmanager
def writing(output: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of writing ``output``."""
    script = textwrap.dedent(
        f"""
        import sys
        from optc.artifact.writer import ArtifactWriter
        with ArtifactWriter({str(output)!r}) as writer, writer.scratch():
            print("ready", flush=True)
            sys.stdin.read()
        """
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_write_is_refused_at_its_start_and_names_the_first(tmp_path: Path) -> None:
    with writing(tmp_path / "x/a") as first:
        before = names(tmp_path / "x")
        with pytest.raises(InputError) as caught:
            enter(tmp_path / "x/a")
        assert str(caught.value) == (
            f"{tmp_path / 'x/a'}: is being written already, by process {first.pid} "
            "(wait for its end, or name another output with -o)"
        )
        write_toy(tmp_path / "x/b")  # which is no part of it
        assert names(tmp_path / "x") == [*before, "b"]
        first.communicate("")
    assert names(tmp_path / "x") == ["b"]


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with writing(tmp_path / "a") as killed, writing(tmp_path / "other") as living:
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        assert f".a.partial-{killed.pid}" in names(tmp_path)
        write_toy(tmp_path / "a")
        left = names(tmp_path)
        assert not [name for name in left if name.startswith(".a.")]
        assert f".other.partial-{living.pid}" in left
        living.communicate("")
    assert names(tmp_path) == ["a"]


def test_only_folders_of_the_same_artifact_are_left_behind(tmp_path: Path) -> None:
    ours = [".a.partial-12", ".a.scratch-x_8abcde"]
    for name in (
        *ours,
        ".a.aside-12",
        ".a.b.partial-1",
        ".ab.partial-1",
        "a.partial-1",
        ".a.partial-x",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / ".a.partial-13").write_text("a file")
    (tmp_path / ".a.partial-14").symlink_to(tmp_path)
    assert [path.name for path in left_behind(tmp_path / "a")] == ours


def test_a_lock_whose_file_is_gone_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last holder removes the file, perhaps between another's opening and locking it."""
    flock, calls = fcntl.flock, []

    def unlink_first(descriptor: int, operation: int) -> None:
        if not calls:
            (tmp_path / ".a.lock").unlink()
        calls.append(operation)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", unlink_first)
    first = Reservation(tmp_path / "a")
    first.acquire()
    assert len(calls) == 2
    with pytest.raises(HeldError, match=str(os.getpid())):
        Reservation(tmp_path / "a").acquire()
    first.release()
    assert names(tmp_path) == []


def refuse_locks(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(reservation.fcntl, "flock", refuse)


@pytest.mark.parametrize("gone", [False, True])
def test_without_locks_nothing_is_reserved_and_nothing_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    refuse_locks(monkeypatch, errno.ENOLCK)
    if gone:  # another process, without a lock too, has removed the file
        monkeypatch.setattr(os, "open", opened_and_removed(os.open))
    (tmp_path / ".a.partial-1").mkdir()
    write_toy(tmp_path / "a")
    assert names(tmp_path) == [".a.partial-1", "a"]


def opened_and_removed(real: Callable[..., int]) -> Callable[..., int]:
    def opened(path: str | Path, *args: int, **kwargs: int) -> int:
        descriptor = real(path, *args, **kwargs)
        if str(path).endswith(".lock"):
            os.unlink(path)
        return descriptor

    return opened


def test_a_lock_that_fails_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_locks(monkeypatch, errno.EIO)
    with pytest.raises(InputError, match="cannot be written: Input/output error"):
        enter(tmp_path / "a")


def test_no_file_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """True if the lock was taken, lost, refused or not to be had."""
    before = os.listdir("/proc/self/fd")
    first = Reservation(tmp_path / "a")
    first.acquire()
    with pytest.raises(HeldError):
        Reservation(tmp_path / "a").acquire()
    first.release()
    found = iter([False, True])
    monkeypatch.setattr(reservation, "_same_file", lambda descriptor, path: next(found))
    first.acquire()
    first.release()
    refuse_locks(monkeypatch, errno.ENOLCK)
    first.acquire()
    refuse_locks(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        first.acquire()
    assert os.listdir("/proc/self/fd") == before


def test_the_file_names_its_holder_alone(tmp_path: Path) -> None:
    """Also after a killed one whose number was longer; everyone may read it."""
    (tmp_path / ".a.lock").write_text("123456789012\n")
    held = Reservation(tmp_path / "a")
    held.acquire()
    assert (tmp_path / ".a.lock").read_text() == f"{os.getpid()}\n"
    held.release()
    before = os.umask(0)
    try:
        held.acquire()
    finally:
        os.umask(before)
    assert (tmp_path / ".a.lock").stat().st_mode & 0o777 == 0o644
    (tmp_path / ".a.lock").write_text("7" * 1000)  # by another program
    with pytest.raises(HeldError) as caught:
        Reservation(tmp_path / "a").acquire()
    assert caught.value.holder == "7" * 20
    held.release()


def test_a_lock_is_given_back_once_even_where_its_file_is_gone(tmp_path: Path) -> None:
    first, second = Reservation(tmp_path / "a"), Reservation(tmp_path / "a")
    first.acquire()
    (tmp_path / ".a.lock").unlink()
    first.release()
    second.acquire()
    first.release()
    assert names(tmp_path) == [".a.lock"]
    second.release()


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("precious")
    (tmp_path / ".a.lock").symlink_to("notes")
    with pytest.raises(InputError, match="cannot be written: Too many levels of symbolic links"):
        enter(tmp_path / "a")
    assert (tmp_path / "notes").read_text() == "precious"


def test_what_cannot_be_removed_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str | Path, *, dir_fd: int | None = None) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    (tmp_path / ".a.partial-1").mkdir()
    monkeypatch.setattr(os, "rmdir", refuse)
    write_toy(tmp_path / "a")
    assert names(tmp_path) == [".a.partial-1", "a"]


def test_whoever_writes_is_named_as_what_it_is(tmp_path: Path) -> None:
    """A pull, a patch that is applied or a compile, in this process or another one."""
    artifact = write_toy(tmp_path / "a")
    place = open_place(parse_reference(f"oci:{tmp_path / 'layout'}:v1", "x"))
    push(artifact, place)
    with ArtifactWriter(tmp_path / "b"):
        with pytest.raises(InputError) as caught:
            pull(place, tmp_path / "b", "layout")
        assert caught.value.message == "is being written already, by this process"
    with writing(tmp_path / "b") as first, pytest.raises(InputError) as caught:
        pull(place, tmp_path / "b", "layout")
    assert caught.value.message == f"is being written already, by process {first.pid}"


def test_folders_made_for_a_refused_write_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that had the place ended at once, and had not written its number yet."""

    def refuse(self: Reservation) -> None:
        raise HeldError("")

    monkeypatch.setattr(Reservation, "acquire", refuse)
    with pytest.raises(InputError, match=r"is being written already, by another process \(wait"):
        enter(tmp_path / "x/a")
    assert names(tmp_path) == []


def test_an_empty_folder_is_replaced_with_its_mode(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    with pytest.raises(RuntimeError), ArtifactWriter(tmp_path / "a"):
        raise RuntimeError
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == []
    write_toy(tmp_path / "a")
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_filled_meanwhile_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/.keep").write_text("")
    with pytest.raises(InputError, match="already exists"):
        enter(tmp_path / "a")
    (tmp_path / "a/.keep").unlink()
    with ArtifactWriter(tmp_path / "a") as writer:
        (tmp_path / "a/notes").write_text("precious")
        write_files(writer)
        with pytest.raises(InputError, match="already exists"):
            writer.commit(toy_manifest(writer.hashed_files()), {})
    assert (tmp_path / "a/notes").read_text() == "precious"


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="needs a mount at /dev/shm")
def test_a_mount_point_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a mount point, which cannot be replaced"):
        enter(Path("/dev/shm"))
