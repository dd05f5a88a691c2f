"""TVM's compiler in processes that are forked from one which has imported it.

Its imports take two thirds of the time in which a process of its own compiles a tiny model. Beside
them nothing differs: it crashes, hangs, is killed and takes memory alone. Commands that tests start
as processes, as users do, start a new one for each compile.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import cast

import pytest

from optc.system.processes.child_job import ChildJob, answer
from optc.system.processes.child_process import child_environment
from tests.support.cost.cpu_times import counted, cpu_seconds
from tests.support.cost.subject import have_passes

#: The module that is one compile.
COMPILER = "optc.backends.tvm.compiling.child"


class Forked:
    """A forked compile, with as much of `subprocess.Popen` as `ChildJob` uses."""

    def __init__(self, asked: Path, result: Path, log: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", child_environment()["PYTHONPATH"])
            context.set_forkserver_preload([__name__, f"{__package__}.imported_compiler"])
            forkserver.ensure_running()
        log.touch()
        given = (asked, result, log, dict(os.environ), not have_passes())
        self._process = cast(ForkServerProcess, context.Process(target=compiles, args=given))
        self._process.start()
        assert self._process.pid is not None
        self.pid, self._used = self._process.pid, _used(result)

    def poll(self) -> int | None:
        """The status, if it has ended; of a signal negative."""
        return self._process.exitcode

    def kill(self) -> None:
        """End it."""
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        """The status, once it has ended.

        Raises:
            subprocess.TimeoutExpired: It has not within so many seconds.
        """
        self._process.join(timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(COMPILER, timeout or 0.0)
        if self._used.exists():
            counted(float(self._used.read_text()))
            self._used.unlink()
        return status


def compiles(
    asked: Path, result: Path, log: Path, environment: Mapping[str, str], plain: bool
) -> None:
    """In the forked process: compile as the module does that a command starts, or ``plain``."""
    from optc.backends.tvm.compiling.child import compile_engine
    from tests.support.cost.plain import leave_out_passes

    with log.open("wb") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    if plain:
        leave_out_passes()
    status = answer([str(asked), str(result)], compile_engine)
    _used(result).write_text(str(cpu_seconds()))
    sys.exit(status)


def _used(result: Path) -> Path:
    return result.with_suffix(".cpu")


def fork_compilers(patch: pytest.MonkeyPatch) -> None:
    """From now on compiles of this process fork theirs."""
    start = ChildJob._start

    def forked(job: ChildJob, asked: Path, result: Path, log: Path) -> object:
        started = Forked if job.module == COMPILER else start.__get__(job)
        return started(asked, result, log)

    patch.setattr(ChildJob, "_start", forked)
