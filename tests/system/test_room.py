"""Room for files: none is an error that says on which disk, and never the end of the process."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from optc.system.full_disk import on_disk_of
from optc.system.room import Array, give_room, mapped_array, save_array, write_array

#: Writes into a file that is mapped, of a size that the process may not give any file.
CHILD = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
from pathlib import Path
from optc.system.room import mapped_array
try:
    mapped_array(Path(sys.argv[1]), (1 << 20,), "float32")[:] = 1
except OSError as error:
    print(error.errno, error.filename)
"""


def test_a_file_that_has_no_room_is_an_error_before_it_is_mapped(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    run = subprocess.run(
        [sys.executable, "-c", CHILD, path], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [str(errno.EFBIG), path]


def test_a_mapped_array_is_zeros_that_can_be_written(tmp_path: Path) -> None:
    array = mapped_array(tmp_path / "a", (3, 5), np.float32)
    assert not array.any()
    array[:] = 2
    assert (np.fromfile(tmp_path / "a", np.float32) == 2).all()


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, None])
def test_file_systems_that_cannot_give_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(number, "no")

    if number is None:
        monkeypatch.delattr(os, "posix_fallocate")
    else:
        monkeypatch.setattr(os, "posix_fallocate", refuse)
    with (tmp_path / "a").open("wb") as file:
        give_room(file.fileno(), 10, 20)
        give_room(file.fileno(), 0, 5)
    assert (tmp_path / "a").stat().st_size == 30


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_what_cannot_be_written_has_a_number_and_a_name() -> None:
    full = Path("/dev/full")
    writes: list[Callable[[Path, Array], None]] = [save_array, _write]
    for write in writes:
        with pytest.raises(OSError, match="No space left") as caught:
            write(full, np.ones(1 << 16, np.float32))
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(full))


def _write(path: Path, array: Array) -> None:
    with on_disk_of(path), path.open("wb", buffering=0) as file:
        write_array(file, array)


@pytest.mark.parametrize("kind", [np.float32, np.int8, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5)])
def test_arrays_are_written_as_numpy_does(
    tmp_path: Path, kind: type, shape: tuple[int, ...]
) -> None:
    array: Array = np.arange(10).astype(kind)[: int(np.prod(shape))].reshape(shape)
    with (tmp_path / "a").open("wb") as file:
        write_array(file, array)
        write_array(file, array.T)
    assert (tmp_path / "a").read_bytes() == array.tobytes() + array.T.tobytes()
    save_array(tmp_path / "b.npy", np.ones((2, 3)))
    assert (np.load(tmp_path / "b.npy", mmap_mode="r") == np.ones((2, 3))).all()


def test_other_errors_stay_as_they_are(tmp_path: Path) -> None:
    for error in (OSError("no number"), OSError(errno.EACCES, "no"), ValueError("x")):
        with pytest.raises(type(error)) as caught, on_disk_of(tmp_path):
            raise error
        assert caught.value is error
