"""Runs tests in forked processes: what no mutant changes is imported once, before the forks.

Started in the folder of a copy of the repository. Reads one JSON request a line, with the keys
``tests``, ``folder`` (for temporary files), ``timeout_s`` and ``verbose``, and answers each with
one line (`Answer`).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn, TypedDict

import pytest
from hypothesis import Phase, settings

#: None of them starts a thread or a process when it is imported. torch is left out: few tests use
#: it, and it would be loaded for all.
PRELOADED = ("numpy", "tokenizers", "jinja2", "llguidance", "onnx", "onnx_ir", "onnxruntime")
#: A mutant that appends for ever ends by a MemoryError, not by taking the machine with it.
DATA_BYTES = 8 << 30
#: How many tests passed, and which one runs.
RUNNING = "running.json"


class Answer(TypedDict):
    """The result of a run of tests.

    Keys:
        outcome: ``passed``, ``failed`` or ``timeout``.
        passed: Tests that passed.
        by: The first test that failed, or the one that ran when time was up; empty if a file did
            not even import, or the process died.
        seconds: How long it took.
    """

    outcome: str
    passed: int
    by: str
    seconds: float


class _Watcher:
    """Counts, and takes failing examples as they come: to make them small takes minutes."""

    def __init__(self, running: Path) -> None:
        self.passed, self.by, self._running = 0, "", running

    def pytest_collection(self) -> None:
        """After the conftest has chosen its profile, before tests are imported."""
        phases = (Phase.explicit, Phase.reuse, Phase.generate)
        settings.register_profile(
            "mutants", settings.default, phases=phases, report_multiple_bugs=False
        )
        settings.load_profile("mutants")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Leave word of the test that begins, for when time is up."""
        self._running.write_text(json.dumps([self.passed, nodeid]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test ended."""
        self.passed += report.when == "call" and report.passed
        if report.failed:
            self.by = self.by or report.nodeid


def main() -> None:
    """Answer until there are no more requests."""
    _check_that_the_copy_is_imported()
    for name in PRELOADED:
        importlib.import_module(name)
    for plugin in entry_points(group="pytest11"):
        plugin.load()  # pytest would load them in every fork: more than half of a quick test's time
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(_run(**request)) + "\n")


def _check_that_the_copy_is_imported() -> None:
    found = importlib.util.find_spec("optc")
    origin = found.origin if found else None
    if origin is None or not Path(origin).is_relative_to(Path.cwd()):
        sys.exit(f"optc would be imported from {origin}, which is not in {Path.cwd()}")


def _run(tests: list[str], folder: str, timeout_s: float, verbose: bool) -> Answer:
    started = time.monotonic()
    reading, writing = os.pipe()
    Path(folder, RUNNING).touch()
    child = os.fork()
    if not child:
        os.close(reading)
        _test(tests, folder, verbose, writing)
    os.close(writing)
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([reading, ended], [], [], timeout_s)
    seconds = time.monotonic() - started
    try:
        os.killpg(child, signal.SIGKILL)  # with whatever the tests have left running
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)  # not yet the leader of a group of its own
    os.waitpid(child, 0)
    os.close(ended)
    os.set_blocking(reading, False)
    said = b""
    if reading in ready:
        said = os.read(reading, 65536)
    os.close(reading)
    if not ready:
        running = Path(folder, RUNNING)
        passed, by = json.loads(running.read_text() or "null") or (0, "")
        return Answer(outcome="timeout", passed=passed, by=by, seconds=seconds)
    status, passed, by = json.loads(said) if said else (1, 0, "")
    outcome = "failed" if status else "passed"
    return Answer(outcome=outcome, passed=passed, by=by, seconds=seconds)


def _test(tests: list[str], folder: str, verbose: bool, writing: int) -> NoReturn:
    """Run the tests in this forked process and end it."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
    os.environ |= {"TMPDIR": folder, "HYPOTHESIS_STORAGE_DIRECTORY": f"{folder}/hypothesis"}
    output = os.open(f"{folder}/output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for here, there in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(here, there)
    watcher = _Watcher(Path(folder, RUNNING))
    arguments = [*tests, "-x", "-p", "no:cacheprovider", f"--basetemp={folder}/pytest"]
    arguments += ["--tb=short"] if verbose else ["--tb=no", "--assert=plain"]
    status = 1
    try:
        status = int(pytest.main(arguments, plugins=[watcher]))
    finally:
        # Not by sys.exit: a thread that hangs would keep the process, and the verdict is known.
        os.write(writing, json.dumps([status, watcher.passed, watcher.by]).encode())
        os._exit(0)


if __name__ == "__main__":
    main()
