"""What is said where lm-eval is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from optc.errors import UnavailableError


@contextmanager
def eval_packages() -> Iterator[None]:
    """Turn a missing package into an error that says how to get it.

    Raises:
        UnavailableError: A package of the ``eval`` extra is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "optc":
            raise
        raise UnavailableError(
            f"the package {error.name!r} is not installed",
            where="lm-eval",
            hint="pip install 'optc[eval]'",
        ) from error
