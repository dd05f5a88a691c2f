"""The standard streams of the ``optc`` process: closed ones, full ones, and readers that left.

A command writes with `print`, click and rich; whichever it is, what cannot be written to stdout
ends in one error here, and what cannot be written to stderr is dropped, since nobody is left to
be told.
"""

from __future__ import annotations

import io
import os
import sys
from select import select
from typing import TYPE_CHECKING, Any

from optc.errors import OptcError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

EXIT_OUTPUT = 74
#: As a shell states it of a program that SIGPIPE ended.
EXIT_READER_LEFT = 141


class OutputError(OptcError):
    """Results could not be written to stdout.

    It is no `OSError`: click and rich handle those of a closed pipe themselves, each in its way.
    """

    kind = "output"
    exit_code = EXIT_OUTPUT


class ReaderLeftError(OutputError):
    """The reader of stdout has closed its end, as ``head`` does when it has enough."""

    exit_code = EXIT_READER_LEFT


class _Written(io.FileIO):
    """A file that is written to its end, also where the caller left it non-blocking, as shells
    and terminals' multiplexers do with the descriptors that they share."""

    def write(self, data: ReadableBuffer, /) -> int:
        while (count := super().write(data)) is None:
            select([], [self], [])
        return count


class _Stdout(_Written):
    """A file whose writing fails with `OutputError`."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise ReaderLeftError("its reader has left", where="stdout") from error
        except OSError as error:
            raise _unwritable(error.strerror or str(error)) from error


class _Stderr(_Written):
    """A file that drops what cannot be written."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def guard_streams() -> None:
    """Make stdout and stderr behave as the module says, also where they are closed.

    Descriptors 0 to 2 are taken in any case: otherwise a file that the work opens would get one of
    them, and what a child process prints would go into that file.

    Raises:
        OutputError: Stdout is closed.
    """
    closed = sys.stdout is None
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(descriptor)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    sys.stderr = _text(_Stderr(2, "w", closefd=False), sys.stderr)
    sys.stdout = _text(_Stdout(1, "w", closefd=False), sys.stdout)
    if closed:
        raise _unwritable("it is closed")


def abandon_stdout() -> None:
    """Let what is still to be written go nowhere, so that Python does not fail again at its end."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.close(descriptor)


def _text(file: io.FileIO, old: Any) -> io.TextIOWrapper:
    """A text stream over ``file`` in the encoding of the one that it replaces.

    Names of files may hold bytes that are no text; they are written as escapes.
    """
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=None if old is None else old.encoding,
        errors="backslashreplace",
        line_buffering=old is not None and old.line_buffering,
    )


def _unwritable(reason: str) -> OutputError:
    return OutputError(
        f"the results cannot be written: {reason}",
        where="stdout",
        hint="the command had done its work; send its output elsewhere",
    )
