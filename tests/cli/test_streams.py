"""Results that nobody can take: a full disk, a closed stream, a reader that left."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from optc.cli import streams
from optc.cli.streams import OutputError, ReaderLeftError

OPTC = str(Path(sys.executable).with_name("optc"))


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command line of bash in which ``$0`` is optc; gives the codes of its first pipe."""
    line = f"{command}; echo ${{PIPESTATUS[0]}} >&3"
    read, write = os.pipe()
    with os.fdopen(read) as codes:
        arguments = ["bash", "-c", f"exec 3>&{write}; {line}", OPTC]
        done = subprocess.run(arguments, capture_output=True, text=True, pass_fds=[write])
        os.close(write)
        done.returncode = int(codes.read())
    return done


FULL = "error: stdout: the results cannot be written: No space left on device (the command had done"


@pytest.mark.parametrize("command", ["targets --json", "targets", "--help"])
def test_a_full_disk_is_one_error(command: str) -> None:
    done = shell(f'"$0" {command} >/dev/full')
    assert done.returncode == 74
    assert done.stderr.startswith(FULL)
    assert done.stderr.count("\n") == 1


def test_a_closed_stdout_is_no_success() -> None:
    done = shell('"$0" targets --json >&-')
    assert done.returncode == 74
    assert done.stderr.startswith("error: stdout: the results cannot be written: it is closed (")
    assert done.stderr.count("\n") == 1


def test_an_error_that_stdout_does_not_take_is_told_on_stderr() -> None:
    done = shell('"$0" verify absent --json >/dev/full')
    assert done.returncode == 2
    assert done.stderr.startswith("error: absent: no such artifact")


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
def test_a_stderr_that_takes_nothing_changes_nothing(stderr: str) -> None:
    done = shell(f'"$0" targets --json {stderr}')
    assert done.returncode == 0
    assert json.loads(done.stdout)["schema"] == "optc.targets.v1"
    assert shell(f'"$0" absent {stderr}').returncode == 2


def test_a_reader_that_left_is_no_error_but_the_code_of_a_broken_pipe() -> None:
    read, write = os.pipe()
    os.close(read)
    for command in (["targets"], ["targets", "--json"], ["--help"]):
        done = subprocess.run([OPTC, *command], stdout=write, stderr=subprocess.PIPE)
        assert (done.returncode, done.stderr) == (141, b"")
    os.close(write)


@pytest.mark.parametrize("kind", [streams._Stdout, streams._Stderr])
def test_a_pipe_that_is_full_for_now_is_waited_for(kind: type[io.FileIO]) -> None:
    """Who shares the pipe with us may have made it non-blocking."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    whole = os.urandom(1 << 20)  # a pipe holds 64 KiB
    with ThreadPoolExecutor(1) as pool, os.fdopen(read, "rb") as reader:
        received = pool.submit(reader.read)
        with io.TextIOWrapper(io.BufferedWriter(kind(write, "w"))) as stream:
            stream.buffer.write(whole)
        assert received.result() == whole


HELD = """
import os
from optc.cli.streams import OutputError, guard_streams
try:
    guard_streams()
except OutputError:
    assert os.readlink("/proc/self/fd/1") == "/dev/null"
assert os.open("/dev/zero", os.O_RDONLY) > 2
assert os.readlink("/proc/self/fd/0") == os.readlink("/proc/self/fd/2") == "/dev/null"
import sys
assert sys.stdin.read() == ""
os._exit(9)
"""


def test_files_do_not_get_the_numbers_of_closed_streams() -> None:
    command = ["bash", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, HELD]
    assert subprocess.run(command).returncode == 9


def test_each_failure_of_stdout_is_its_own_error() -> None:
    full = streams._Stdout(os.open("/dev/full", os.O_WRONLY), "w")
    with pytest.raises(OutputError, match="No space left on device") as caught, full:
        full.write(b"x")
    assert not isinstance(caught.value, ReaderLeftError)
    assert not isinstance(caught.value, OSError)
    read, write = os.pipe()
    os.close(read)
    with pytest.raises(ReaderLeftError), streams._Stdout(write, "w") as left:
        left.write(b"x")


def test_names_that_are_no_text_are_written_as_escapes(tmp_path: Path) -> None:
    for encoding, written in (("ascii", b"\\xe9 \\udcff"), ("utf-8", b"\xc3\xa9 \\udcff")):
        path = tmp_path / encoding
        with path.open("wb") as file:
            old = io.TextIOWrapper(io.BytesIO(), encoding)
            raw = streams._Stdout(file.fileno(), "w", closefd=False)
            with streams._text(raw, old) as stream:
                stream.write("\xe9 \udcff")
        assert path.read_bytes() == written
