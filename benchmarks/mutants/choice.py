"""Chooses which of the tests that run a line are asked, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

#: What a file takes to be imported, beside the seconds of its tests.
FILE_S = 0.5


def chosen(runners: Mapping[str, float], budget_s: float, without: Collection[str]) -> list[str]:
    """As many tests as a budget of seconds allows, at least one.

    Of each function the fastest row of its parameters comes first, the fastest functions before
    the others; then the second rows, and so on: rows of one function see much the same.

    Args:
        runners: The tests and their seconds.
        budget_s: The budget.
        without: Files whose tests have been asked.
    """
    fastest = sorted(runners, key=lambda test: (runners[test], test))
    rows: Counter[str] = Counter()
    ranked: list[tuple[int, str]] = []
    for test in fastest:
        if _file(test) not in without:
            function = test.partition("[")[0]
            ranked.append((rows[function], test))
            rows[function] += 1
    ranked.sort(key=lambda one: one[0])  # stays sorted by seconds within a rank
    found, files, left = list[str](), set[str](), budget_s
    for _, test in ranked:
        left -= runners[test] + (0.0 if _file(test) in files else FILE_S)
        if left < 0 and found:
            break
        found.append(test)
        files.add(_file(test))
    return found


def _file(test: str) -> str:
    return test.partition("::")[0]
