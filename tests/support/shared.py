"""What several tests need and is long in the making: made once, by the first worker that asks."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], T]) -> T:
    """What ``make`` returns for the new folder ``name``, the same folder for all workers.

    Other workers wait for the first one. If it fails they try in turn, so that every test that
    needs the result shows why there is none.
    """
    base = _base(factory)
    folder, result = base / name, base / f"{name}.pickle"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            result.write_bytes(pickle.dumps(make(folder)))
    made: T = pickle.loads(result.read_bytes())
    return made


def shared_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """The new folder ``name``, the same one for all workers."""
    folder = _base(factory) / name
    folder.mkdir(exist_ok=True)
    return folder


def _base(factory: pytest.TempPathFactory) -> Path:
    base = factory.getbasetemp()
    # each worker has a base of its own in it
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
