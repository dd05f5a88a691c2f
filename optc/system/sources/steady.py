"""Files of a model must not change while it is compiled, trained or compared with: its weights are
read again and again, over minutes or hours, from where they lie."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from optc.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")
#: Names of files that hold a model. Logs and states of a training may change beside it.
_HOLD = re.compile(
    r"(?!\.)(.*\.(safetensors|bin|gguf|onnx|onnx_data|data|model|jinja|py)"
    r"|.*(config|index|token|vocab|modules).*\.json|(vocab|merges)\.txt)"
)
#: Files that say that the folders beside them are parts of the model.
_OF_PARTS = ("model_index.json", "modules.json")
#: Ends of names beside a file whose name begins alike: data of an ONNX file, and shards.
_BESIDE = r"([._-].*(data|bin|weights)|-\d+-of-\d+\.gguf)"
_SHARD = re.compile(r"-\d+-of-\d+$")


class _State(NamedTuple):
    """The file of a name: another one, or another content, is another state."""

    device: int
    inode: int
    bytes: int
    changed_ns: int


_steady: ContextVar[dict[Path, _State] | None] = ContextVar("steady", default=None)


@contextmanager
def steady(given: Iterable[object]) -> Iterator[None]:
    """`check_steady` looks, while the block runs, at the files of these models.

    Args:
        given: Paths of files and folders; what is no path, or leads nowhere, is left out.
    """
    files = [file for one in given if isinstance(one, str | Path) for file in _files(Path(one))]
    found = ((file, _state(file)) for file in files)
    token = _steady.set({file: state for file, state in found if state is not None})
    try:
        yield
    finally:
        _steady.reset(token)


@contextmanager
def steady_throughout(given: Iterable[object]) -> Iterator[None]:
    """`steady`, which looks when the block ends, whatever came of it.

    Raises:
        InputError: A file has been changed, replaced or removed meanwhile.
    """
    with steady(given), steady_so_far():
        yield


def reads_steadily(*names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function of which the arguments ``names`` are models and texts: `steady_throughout`."""

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            given = signature.bind(*args, **kwargs).arguments
            with steady_throughout(given.get(name) for name in names):
                return function(*args, **kwargs)

        return call

    return decorated


@contextmanager
def steady_so_far() -> Iterator[None]:
    """`check_steady` when the block ends: of a block that failed, it is the reason.

    Raises:
        InputError: As `check_steady`.
    """
    try:
        yield
    except Exception:
        check_steady()
        raise
    check_steady()


def check_steady() -> None:
    """Check that the files of the models are as they were when `steady` began.

    Raises:
        InputError: One has been changed, replaced or removed meanwhile.
    """
    for file, before in (_steady.get() or {}).items():
        now = _state(file)
        if now != before:
            did = "was removed" if now is None else "changed"
            raise InputError(
                f"{did} while it was being read: what was read of it may be of two models",
                where=str(file),
                hint="begin again once nothing writes to it",
            )


def _files(path: Path) -> Iterator[Path]:
    """The files that a model may be read from."""
    try:
        if path.is_file():
            beside = re.compile(re.escape(_SHARD.sub("", path.stem)) + _BESIDE)
            yield path
            yield from (one for one in _held(path.parent) if beside.fullmatch(one.name))
        elif path.is_dir():
            yield from _held(path)
            if any((path / name).is_file() for name in _OF_PARTS):
                for folder in path.iterdir():
                    if folder.is_dir() and not folder.name.startswith("."):
                        yield from _held(folder)
    except (OSError, ValueError):  # what reads the model says what is wrong
        return


def _held(folder: Path) -> list[Path]:
    return [one for one in folder.iterdir() if _HOLD.fullmatch(one.name) and one.is_file()]


def _state(file: Path) -> _State | None:
    """The state of a file; None where there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return _State(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
