"""Finds the tests that run the lines of mutants: by one run of tests in a copy with probes."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from benchmarks.mutants import probe
from benchmarks.mutants.journal import Journal
from benchmarks.mutants.mutations import Mutation
from benchmarks.mutants.probes import probed
from benchmarks.mutants.trials import copy_tree
from tests.support.tests_of import mirrored_test

#: The module that probes call, in a copy.
PROBE = Path(*probe.__name__.split("."))
#: Exit codes of pytest that say that it ran to its end: all passed, some failed.
_ENDED = (0, 1)


class ProbedTestsError(Exception):
    """pytest did not run to its end in the copy with probes."""


@dataclass(frozen=True)
class Ran:
    """A run of tests in a copy with probes.

    Attributes:
        seconds: Of the tests that passed.
        by_mutant: By the numbers of mutants, the tests that ran their lines.
        unprobed: Numbers of mutants for which no probe stands.
    """

    seconds: dict[str, float]
    by_mutant: dict[int, set[str]]
    unprobed: set[int]

    def runners(self, number: int, mutation: Mutation) -> dict[str, float]:
        """The tests that passed and ran a mutant's line, and their seconds; where no probe stands
        the tests of the package."""
        if number in self.unprobed:
            package = _package(mutation.module)
            return {test: took for test, took in self.seconds.items() if test.startswith(package)}
        ran = sorted(self.by_mutant.get(number, ()))
        return {test: self.seconds[test] for test in ran if test in self.seconds}


def find_runners(
    root: Path, mutations: Sequence[Mutation], tests: Sequence[str], jobs: int, journal: Journal
) -> dict[Mutation, dict[str, float]]:
    """The tests among ``tests`` (folders, files) that run each mutant's line, and their seconds.

    Raises:
        ProbedTestsError: pytest did not run to its end.
    """
    known = {mutation: journal.runners(mutation) for mutation in mutations}
    unknown = dict(enumerate(mutation for mutation in mutations if known[mutation] is None))
    if unknown:
        print(f"looking for the tests that run {len(unknown)} lines", file=sys.stderr, flush=True)
        ran = _run(root, unknown, tests, jobs)
        for number, mutation in unknown.items():
            known[mutation] = ran.runners(number, mutation)
            journal.note_runners(mutation, known[mutation] or {})
    return {mutation: runners or {} for mutation, runners in known.items()}


def _run(root: Path, mutants: dict[int, Mutation], tests: Iterable[str], jobs: int) -> Ran:
    with tempfile.TemporaryDirectory(prefix="optc-probes-") as folder:
        tree, temporary = Path(folder, "tree"), Path(folder, "tmp")
        copy_tree(root, tree)
        unprobed = _insert(tree, mutants)
        temporary.mkdir()
        command = [sys.executable, "-B", "-m", "pytest", *tests, "-p", probe.__name__]
        command += ["-p", "no:cacheprovider", "-n", str(jobs), "--dist", "worksteal", "--tb=no"]
        command += ["--continue-on-collection-errors", f"--basetemp={temporary}/pytest"]
        environment = os.environ | {"PYTHONPATH": str(tree), "TMPDIR": str(temporary)}
        done = subprocess.run(
            command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, capture_output=True
        )
        if done.returncode not in _ENDED:
            raise ProbedTestsError((done.stdout + done.stderr).decode(errors="replace"))
        return read(tree / PROBE.parent, unprobed)


def _insert(tree: Path, mutants: dict[int, Mutation]) -> set[int]:
    """Put the probes into the modules of a copy."""
    unprobed: set[int] = set()
    for module in {mutation.module for mutation in mutants.values()}:
        here = {number: each for number, each in mutants.items() if each.module == module}
        text, without = probed((tree / module).read_text(), here)
        (tree / module).write_text(text)
        py_compile.compile(
            str(tree / module), invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
        )
        unprobed |= without
    return unprobed


def read(folder: Path, unprobed: set[int]) -> Ran:
    """A run by the files that probes left in a folder."""
    by_mutant: defaultdict[int, set[str]] = defaultdict(set)
    for line in _lines(folder / probe.RAN.name):
        number, test = line.split("\t", 1)
        by_mutant[int(number)].add(test)
    seconds: defaultdict[str, float] = defaultdict(float)
    unusable: set[str] = set()
    for line in _lines(folder / probe.ENDED.name):
        took, outcome, test = line.split("\t", 2)
        seconds[test] += float(took)
        if outcome != "passed":
            unusable.add(test)
    passed = {test: took for test, took in seconds.items() if test not in unusable}
    return Ran(passed, dict(by_mutant), unprobed)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _package(module: str) -> str:
    """The folder of the tests of a module's package: ``tests/runtime/step/`` for
    ``optc/runtime/step/…``."""
    levels = 3 if PurePath(module).parts[0] == "optc" else 2
    return "/".join(PurePath(mirrored_test(module)).parent.parts[:levels]) + "/"
