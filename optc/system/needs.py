"""Missing packages of extras become errors that say how to get them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from optc.errors import UnavailableError
from optc.system.supported import check_system


@contextmanager
def compile_packages() -> Iterator[None]:
    """Turn a missing third-party package into an error that says how to get it.

    Raises:
        UnavailableError: A package of the ``compile`` extra is not installed, or this is no system
            that optc compiles on.
    """
    check_system(compiling=True)
    with _packages("compile"):
        yield


@contextmanager
def serve_packages() -> Iterator[None]:
    """The same for ``optc serve``.

    Raises:
        UnavailableError: A package of the ``serve`` extra is not installed.
    """
    with _packages("serve"):
        yield


@contextmanager
def otel_packages() -> Iterator[None]:
    """The same for spans of OpenTelemetry.

    Raises:
        UnavailableError: A package of the ``otel`` extra is not installed.
    """
    with _packages("otel"):
        yield


@contextmanager
def kv_events_packages() -> Iterator[None]:
    """The same for events of cached prefixes.

    Raises:
        UnavailableError: A package of the ``kv-events`` extra is not installed.
    """
    with _packages("kv-events"):
        yield


@contextmanager
def ray_packages() -> Iterator[None]:
    """The same for replicas on Ray.

    Raises:
        UnavailableError: A package of the ``ray`` extra is not installed.
    """
    with _packages("ray"):
        yield


@contextmanager
def dynamo_packages() -> Iterator[None]:
    """The same for a worker of Dynamo, which is no extra: its package needs one that the index does
    not have.

    Raises:
        UnavailableError: A package of Dynamo is not installed.
    """
    with _packages("serve", "docs/how-to/serve-behind-dynamo.md says how to install it"):
        yield


@contextmanager
def eval_packages() -> Iterator[None]:
    """The same for lm-eval.

    Raises:
        UnavailableError: A package of the ``eval`` extra is not installed.
    """
    with _packages("eval"):
        yield


@contextmanager
def _packages(extra: str, hint: str = "") -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "optc":
            raise
        raise UnavailableError(
            f"the package {error.name!r} is not installed",
            where="optc",
            hint=hint or f"pip install 'optc[{extra}]'",
        ) from error
