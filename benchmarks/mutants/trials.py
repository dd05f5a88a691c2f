"""Tries mutants: each in a private copy of the repository, by the tests of its module or by those
that run its line."""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from benchmarks.mutants.journal import Journal
from benchmarks.mutants.mutations import Mutation
from benchmarks.mutants.server import Answer
from benchmarks.mutants.source import listed

#: A mutant may take so many times as long as the unmutated module, and at least so many seconds:
#: other programs take their share of the machine.
TIMES, LEAST_S = 5.0, 20.0
#: An unmutated test file may take as long.
UNMUTATED_S = 600.0


class UnmutatedTestsError(Exception):
    """Tests fail, or nothing runs, without any change.

    Args:
        test: The test file.
        output: What pytest printed.
    """

    def __init__(self, test: str, output: str) -> None:
        super().__init__(f"{test} does not pass without a mutant\n{output}")


@dataclass(frozen=True)
class Trial:
    """The result of a mutant's tests.

    Attributes:
        mutation: The change.
        tests: Files or tests that were run, or were to be, in their order.
        answer: How they ended.
    """

    mutation: Mutation
    tests: tuple[str, ...]
    answer: Answer


class Copy:
    """A copy of the repository with a process that runs tests in it."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.tree, self._temporary = folder / "tree", folder / "tmp"
        copy_tree(root, self.tree)
        environment = os.environ | {"PYTHONPATH": str(self.tree), "PYTHONHASHSEED": "0"}
        self._server = subprocess.Popen(
            [sys.executable, "-B", "-m", "benchmarks.mutants.server"],
            cwd=self.tree,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def run(self, tests: Sequence[str], timeout_s: float, verbose: bool = False) -> Answer:
        """Run test files."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary.mkdir()
        request = {"tests": tests, "folder": str(self._temporary), "timeout_s": timeout_s}
        self._server.stdin.write(json.dumps(request | {"verbose": verbose}) + "\n")
        self._server.stdin.flush()
        said = self._server.stdout.readline()
        if not said:
            raise RuntimeError("the process that runs tests ended")
        answer: Answer = json.loads(said)
        return answer

    @property
    def output(self) -> str:
        """The latest output of pytest."""
        return (self._temporary / "output.txt").read_text(errors="replace")

    @contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        """While it is open the copy has the change."""
        file = self.tree / mutation.module
        code = file.read_bytes()
        file.write_bytes(mutation.apply(code))
        try:
            yield
        finally:
            file.write_bytes(code)


class Trials:
    """Copies of the repository, and how long its tests take without a change.

    Args:
        root: The repository.
        jobs: How many copies work at the same time.
        journal: What is known already, and where answers are noted.
    """

    def __init__(self, root: Path, jobs: int, journal: Journal) -> None:
        self._root, self._jobs, self._journal = root, jobs, journal
        self._copies: SimpleQueue[Copy] = SimpleQueue()
        self._open = ExitStack()
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> Trials:
        for _ in range(self._jobs):
            folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="optc-mutants-"))
            copy = Copy(self._root, Path(folder))
            self._open.callback(copy.close)
            self._copies.put(copy)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def run_unmutated(self, tests: Iterable[str]) -> None:
        """Run each test file, and note how long it takes.

        Raises:
            UnmutatedTestsError: A test fails, or all are skipped.
        """
        with _threads(self._jobs) as pool:
            for test, answer in pool.map(self._unmutated, tests):
                self.seconds[test] = answer["seconds"]

    def _unmutated(self, test: str) -> tuple[str, Answer]:
        if known := self._journal.unmutated(test):
            return test, known
        with self._copy() as copy:
            answer = copy.run([test], UNMUTATED_S, verbose=True)
            if answer["outcome"] != "passed" or not answer["passed"]:
                raise UnmutatedTestsError(test, copy.output)
        self._journal.note_unmutated(test, answer)
        return test, answer

    def try_all(
        self, mutants: Iterable[tuple[Mutation, Sequence[str]]], done: Callable[[Trial], None]
    ) -> None:
        """Try each mutant by its test files, which have run without it; ``done`` gets each
        trial."""
        with _threads(self._jobs) as pool:
            for trial in pool.map(lambda mutant: self._try(*mutant), mutants):
                done(trial)

    def _try(self, mutation: Mutation, tests: Sequence[str]) -> Trial:
        fastest = sorted(tests, key=lambda test: (self.seconds[test], test))
        answer = self._journal.trial(mutation, tests)
        if answer is None:
            timeout_s = max(LEAST_S, TIMES * sum(self.seconds[test] for test in tests))
            with self._copy() as copy, copy.mutated(mutation):
                answer = copy.run(fastest, timeout_s)
            self._journal.note_trial(mutation, tests, answer)
        return Trial(mutation, tuple(fastest), answer)

    def ask_all(
        self,
        mutants: Iterable[tuple[Mutation, Sequence[str]]],
        budget_s: float,
        done: Callable[[Trial], None],
    ) -> None:
        """Try each mutant by single tests, in their order, until its budget ends."""
        with _threads(self._jobs) as pool:
            for trial in pool.map(
                lambda mutant: self._ask(mutant[0], mutant[1], budget_s), mutants
            ):
                done(trial)

    def _ask(self, mutation: Mutation, tests: Sequence[str], budget_s: float) -> Trial:
        answer = self._journal.trial(mutation, tests, budget_s)
        if answer is None:
            with self._copy() as copy:
                answer = ask(copy, mutation, tests, budget_s)
            self._journal.note_trial(mutation, tests, answer, budget_s)
        return Trial(mutation, tuple(tests), answer)

    @contextmanager
    def _copy(self) -> Iterator[Copy]:
        copy = self._copies.get()
        try:
            yield copy
        finally:
            self._copies.put(copy)


def ask(copy: Copy, mutation: Mutation, tests: Sequence[str], budget_s: float) -> Answer:
    """The answer of the first test that notices a mutant: one that passes alone without the mutant
    and does not with it. If there is none, how many passed before the budget ended."""
    started, left, passed = time.monotonic(), list(tests), 0
    while left and (rest_s := budget_s - (time.monotonic() - started)) > 0:
        with copy.mutated(mutation):
            answer = copy.run(left, rest_s)
        passed += answer["passed"]
        if answer["outcome"] == "passed":
            break
        suspects = [answer["by"]] if answer["by"] else left
        answer = _ask_alone(copy, mutation, suspects, budget_s)
        if answer["outcome"] != "passed":
            return answer
        passed += answer["passed"]
        left = left[left.index(suspects[-1]) + 1 :]
    return Answer(outcome="passed", passed=passed, by="", seconds=time.monotonic() - started)


def _ask_alone(copy: Copy, mutation: Mutation, tests: list[str], budget_s: float) -> Answer:
    """The answer of tests to a mutant, which count as passed where they fail without it, too."""
    control = copy.run(tests, budget_s)
    if control["outcome"] != "passed":
        control["outcome"] = "passed"
        return control
    with copy.mutated(mutation):
        return copy.run(tests, max(LEAST_S, TIMES * control["seconds"]))


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """A pool that, where it ends early, begins nothing more that was submitted."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def copy_tree(root: Path, copy: Path) -> None:
    """Copy what git knows or would add, with bytecode that goes by what is in the files.

    Bytecode that goes by times and sizes could be that of the mutant before.
    """
    for name in listed(root):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, copy / name, follow_symlinks=False)
    checked = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(copy, quiet=2, invalidation_mode=checked)
