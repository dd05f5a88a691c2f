"""Answers of a run that are kept on disk: one that is ended early goes on where it was.

A line of JSON for each answer. An answer holds for the texts of the module and of the tests that
gave it: where one of them has changed since, it is asked again.
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
        if file is not None and file.exists():
            whole, end, _ = file.read_text().rpartition("\n")
            file.write_text(whole + end)
            entries = map(json.loads, whole.splitlines())
            self._answers = {entry["key"]: entry["answer"] for entry in entries}

    def unmutated(self, test: str) -> Answer | None:
        """The answer of a test file without a mutant."""
        return self._answers.get(self._key((test,), [test]))

    def note_unmutated(self, test: str, answer: Answer) -> None:
        """Keep it."""
        self._keep(self._key((test,), [test]), answer)

    def trial(self, mutation: Mutation, tests: Sequence[str]) -> Answer | None:
        """The answer of test files to a mutant."""
        return self._answers.get(self._key(astuple(mutation), [mutation.module, *sorted(tests)]))

    def note_trial(self, mutation: Mutation, tests: Sequence[str], answer: Answer) -> None:
        """Keep it."""
        key = self._key(astuple(mutation), [mutation.module, *sorted(tests)])
        self._keep(key, answer)

    def _keep(self, key: str, answer: Answer) -> None:
        if self._file is None:
            return
        with self._lock, self._file.open("a") as stream:
            stream.write(json.dumps({"key": key, "answer": answer}) + "\n")

    def _key(self, asked: Iterable[object], files: Iterable[str]) -> str:
        digest = hashlib.sha256(repr(tuple(asked)).encode())
        for name in files:
            digest.update(name.encode() + b"\0" + self._texts.get(name, b""))
        return digest.hexdigest()


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()
