"""Notes which tests run a probe, and how each test ends: in the copy that has the probes.

Also a plugin of pytest: ``-p benchmarks.mutants.probe``. Both files lie beside this module, since
processes that tests start may have another environment, and are only appended to, since several
processes write to them. pytest says in the environment which test runs, and processes inherit it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # processes that tests start do not pay for it
    import pytest

#: Lines of a mutant's number and a test.
RAN = Path(__file__).with_name("ran.txt")
#: Lines of seconds, an outcome and a test, one for each of its phases.
ENDED = Path(__file__).with_name("ended.txt")
_noted: set[tuple[int, str]] = set()
# As they are before a test puts others in their place.
_open, _write, _close, _environment = os.open, os.write, os.close, os.environ


def ran(number: int) -> None:
    """Note that the running test runs the line of a mutant, once for each process."""
    test = _environment.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if test and (number, test) not in _noted:
        _noted.add((number, test))
        _append(RAN, f"{number}\t{test}\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note it where it happens: a worker's reports reach the process that started it, too."""
    if not hasattr(report, "node"):
        _append(ENDED, f"{report.duration:.3f}\t{report.outcome}\t{report.nodeid}\n")


def _append(path: Path, line: str) -> None:
    file = _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        _write(file, line.encode())
    finally:
        _close(file)
