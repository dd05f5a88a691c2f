"""Exceptions of packages at data that others made become one error that says where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from optc.errors import InputError, OptcError, UnsupportedError

#: Characters of a package's message that are shown.
_SHOWN = 300
#: What packages in Rust raise at a bug of theirs: no `Exception`, of a class that none exports.
_PANIC = "PanicException"


@contextmanager
def foreign_errors(
    where: str,
    problem: str,
    hint: str = "",
    *,
    unsupported: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Around calls of a package that reads such data. Which exceptions it raises is nowhere said,
    and changes with its version: each of them means that the data cannot be used.

    Args:
        where: The file.
        problem: Begins the message, which ends with what was raised.
        hint: What to do.
        unsupported: Those that say that the data is right and the package cannot take it.

    Raises:
        InputError: The package raised anything.
        UnsupportedError: It raised one of ``unsupported``.
    """
    try:
        yield
    except OptcError:
        raise
    except unsupported as error:
        raise UnsupportedError(f"{problem}: {_said(error)}", where=where) from error
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        raise InputError(f"{problem}: {_said(error)}", where=where, hint=hint) from error


def _said(error: BaseException) -> str:
    """The first line of what was raised first, as a message may show it."""
    error = innermost(error)
    first = next(iter(str(error).strip().splitlines()), "")
    shown = "".join(c if c.isprintable() else "?" for c in first[:_SHOWN])
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


def innermost(error: BaseException) -> BaseException:
    """The error that ``error`` was raised from: packages wrap the one that says what is wrong."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
