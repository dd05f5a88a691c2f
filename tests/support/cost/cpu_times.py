"""A plugin of pytest that prints what tests cost: ``pytest -p tests.support.cost.cpu_times``.

Seconds of CPU of the test's process and of the processes that it has waited for, fixtures that were
made for it among them: on a busy machine they are what they are on a quiet one, which the time on
the clock is not.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

#: Lines of each table.
SHOWN = 25
_NAME = "cpu_seconds"
_STARTED = pytest.StashKey[float]()
_spent: dict[str, float] = {}
_elsewhere = [0.0]


def counted(seconds: float) -> None:
    """Count a process that another one than this has waited for."""
    _elsewhere[0] += seconds


def cpu_seconds() -> float:
    """What this process and the children it has waited for have used so far, and what was
    `counted`."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum((one.ru_utime + one.ru_stime for one in used), _elsewhere[0])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Begin with a test, before its fixtures are made."""
    item.stash[_STARTED] = cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Give the last report of a test what it cost, which goes to the process that prints."""
    report = yield
    if call.when == "teardown":
        report.user_properties.append((_NAME, cpu_seconds() - item.stash[_STARTED]))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what a worker says."""
    for name, value in report.user_properties:
        if name == _NAME:
            _spent[report.nodeid] = value


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables."""
    terminalreporter.section("CPU seconds")
    for line in tables(_spent):
        terminalreporter.write_line(line)


def tables(spent: Mapping[str, float]) -> list[str]:
    """Lines of the dearest folders, files and tests, and of all of them together."""
    folders, files = Counter[str](), Counter[str]()
    for test, seconds in spent.items():
        file = test.partition("::")[0]
        files[file] += seconds  # type: ignore[assignment]
        folders["/".join(file.split("/")[:3])] += seconds  # type: ignore[assignment]
    lines = [f"{sum(spent.values()) / 60:.1f} minutes for {len(spent)} tests, without collecting"]
    for costs in (folders, files, Counter(spent)):
        lines += ["", *(f"{cost:8.1f}  {name}" for name, cost in costs.most_common(SHOWN))]
    return lines
