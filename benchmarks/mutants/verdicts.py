"""Says of each mutant what becomes of it: by the tests of its module, then by those of others."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.mutants.choice import chosen
from benchmarks.mutants.draw import EQUIVALENT, read_equivalent
from benchmarks.mutants.journal import Journal
from benchmarks.mutants.mutations import Mutation
from benchmarks.mutants.probing import find_runners
from benchmarks.mutants.trials import Trial, Trials
from tests.support.tests_of import tests_of

#: In the order in which they are printed.
VERDICTS = (
    "killed",
    "killed by timeout",
    "killed by others",
    "survived",
    "not tested",
    "equivalent",
)
_BY_OWN = {"failed": "killed", "timeout": "killed by timeout", "passed": "survived"}
_BY_OTHERS = _BY_OWN | {"failed": "killed by others"}


@dataclass(frozen=True)
class Others:
    """The tests that are asked of what the tests of its own module let live.

    Attributes:
        tests: Folders and files.
        budget_s: Seconds of each mutant.
    """

    tests: tuple[str, ...]
    budget_s: float


def judge(
    root: Path,
    drawn: Sequence[Mutation],
    jobs: int,
    others: Others | None,
    journal: Journal,
) -> dict[str, list[dict[str, Any]]]:
    """The mutants by what becomes of them; ``others`` None: by the tests of their modules only."""
    equivalents = read_equivalent(root / EQUIVALENT)
    verdicts: dict[str, list[dict[str, Any]]] = {verdict: [] for verdict in VERDICTS}
    to_try: list[tuple[Mutation, list[str]]] = []
    living: list[Mutation] = []
    for mutation in drawn:
        tests = tests_of(root, mutation.module)
        reasons = [each.reason for each in equivalents if each.names(mutation)]
        if reasons:
            verdicts["equivalent"].append(_shown(mutation) | {"reason": reasons[0]})
        elif tests:
            to_try.append((mutation, tests))
        elif others:
            living.append(mutation)
        else:
            verdicts["not tested"].append(_shown(mutation))

    def note(verdict: str, trial: Trial, **more: object) -> None:
        seconds = round(trial.answer["seconds"], 1)
        shown = _shown(trial.mutation) | {"by": trial.answer["by"], "seconds": seconds}
        verdicts[verdict].append(shown | more)
        print(f"{verdict:17} {seconds:6.1f} s  {shown['where']}", file=sys.stderr, flush=True)

    def by_own(trial: Trial) -> None:
        verdict = _BY_OWN[trial.answer["outcome"]]
        if others and verdict == "survived":
            living.append(trial.mutation)
        else:
            note(verdict, trial)

    def by_others(trial: Trial) -> None:
        own = tests_of(root, trial.mutation.module)
        run_by = sum(test.partition("::")[0] not in own for test in runners[trial.mutation])
        asked = trial.answer["passed"]
        note(_BY_OTHERS[trial.answer["outcome"]], trial, asked=asked, run_by=run_by)

    if not (to_try or living):
        return verdicts
    with Trials(root, jobs, journal) as trials:
        trials.run_unmutated(sorted({test for _, tests in to_try for test in tests}))
        trials.try_all(to_try, by_own)
        if others and living:
            runners = find_runners(root, living, others.tests, jobs, journal)
            asked = [
                (each, chosen(runners[each], others.budget_s, tests_of(root, each.module)))
                for each in living
            ]
            trials.ask_all(asked, others.budget_s, by_others)
    return verdicts


def not_all_asked(survivor: Mapping[str, Any]) -> bool:
    """True of a survivor for which the budget ended before all tests that run its line."""
    return bool(survivor.get("asked", 0) < survivor.get("run_by", 0))


def _shown(mutation: Mutation) -> dict[str, Any]:
    return {
        "where": f"{mutation.module}:{mutation.lineno}",
        "scope": mutation.scope,
        "kind": mutation.kind,
        "line": mutation.line,
        "becomes": mutation.becomes,
    }
