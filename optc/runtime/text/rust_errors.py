"""The errors that the tokenizers package raises, as one exception that can be caught."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class RustError(ValueError):
    """The package gave up; the message is its own."""


@contextmanager
def rust_errors() -> Iterator[None]:
    """Raise `RustError` for what the package raises in the block.

    Its errors are plain ``Exception``, and its panics are no ``Exception`` at all: neither can be
    named in an ``except`` that lets other errors through.
    """
    try:
        yield
    except BaseException as error:
        if type(error) is Exception or type(error).__name__ == "PanicException":
            raise RustError(str(error)) from error
        raise
