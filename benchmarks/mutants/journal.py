"""Answers of a run that are kept on disk: one that is ended early goes on where it was.

A line of JSON for each answer. An answer holds for the texts of the module and of the tests that
gave it: where one of them has changed since, it is asked again. Which tests run a line holds for
the text of the module alone: a test that came later is not among them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from threading import Lock

from benchmarks.mutants.mutations import Mutation
from benchmarks.mutants.server import Answer
from benchmarks.mutants.source import listed


class Journal:
    """Answers by what was asked.

    Args:
        root: The repository.
        file: Where they are kept; None keeps nothing. A last line that is not whole is left out.
    """

    def __init__(self, root: Path, file: Path | None) -> None:
        self._file, self._lock = file, Lock()
        # As they are now, when copies of them are about to be made: they may change meanwhile.
        self._texts = {name: _digest(root / name) for name in listed(root, "*.py")} if file else {}
        self._answers: dict[str, Answer] = {}
        self._runners: dict[str, dict[str, float]] = {}
        if file is not None and file.exists():
            whole, end, _ = file.read_text().rpartition("\n")
            file.write_text(whole + end)
            for entry in map(json.loads, whole.splitlines()):
                kept = self._answers if "answer" in entry else self._runners
                kept[entry["key"]] = entry.get("answer", entry.get("runners"))

    def unmutated(self, test: str) -> Answer | None:
        """The answer of a test file without a mutant."""
        return self._answers.get(self._key((test,), [test]))

    def note_unmutated(self, test: str, answer: Answer) -> None:
        """Keep it."""
        self._keep(self._key((test,), [test]), answer=answer)

    def trial(
        self, mutation: Mutation, tests: Sequence[str], budget_s: float | None = None
    ) -> Answer | None:
        """The answer of test files, or within a budget of tests, to a mutant."""
        return self._answers.get(self._trial_key(mutation, tests, budget_s))

    def note_trial(
        self,
        mutation: Mutation,
        tests: Sequence[str],
        answer: Answer,
        budget_s: float | None = None,
    ) -> None:
        """Keep it."""
        self._keep(self._trial_key(mutation, tests, budget_s), answer=answer)

    def runners(self, mutation: Mutation) -> dict[str, float] | None:
        """The tests that run the line of a mutant, and their seconds."""
        return self._runners.get(self._key(("runners", *astuple(mutation)), [mutation.module]))

    def note_runners(self, mutation: Mutation, runners: dict[str, float]) -> None:
        """Keep them."""
        key = self._key(("runners", *astuple(mutation)), [mutation.module])
        self._keep(key, runners=runners)

    def _keep(self, key: str, **entry: object) -> None:
        if self._file is None:
            return
        with self._lock, self._file.open("a") as stream:
            stream.write(json.dumps({"key": key, **entry}) + "\n")

    def _trial_key(self, mutation: Mutation, tests: Sequence[str], budget_s: float | None) -> str:
        budget = () if budget_s is None else (budget_s, *tests)
        files = sorted({test.partition("::")[0] for test in tests})
        return self._key((*astuple(mutation), *budget), [mutation.module, *files])

    def _key(self, asked: Iterable[object], files: Iterable[str]) -> str:
        digest = hashlib.sha256(repr(tuple(asked)).encode())
        for name in files:
            digest.update(name.encode() + b"\0" + self._texts.get(name, b""))
        return digest.hexdigest()


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()
