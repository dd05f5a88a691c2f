"""Draws lines at random, and of each one change; and knows which of them change nothing."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from benchmarks.mutants.mutations import Mutation, find_mutations

EQUIVALENT = Path("benchmarks/mutants_equivalent.toml")


def find_modules(root: Path, paths: Iterable[str]) -> list[str]:
    """Modules in or at ``paths``, relative to ``root`` and without symbolic links.

    Raises:
        FileNotFoundError: There is nothing at one of the paths.
    """
    root = root.resolve()
    found: set[Path] = set()
    for path in paths:
        at = (root / path).resolve()
        if not at.exists() or not at.is_relative_to(root):
            raise FileNotFoundError(f"no module or folder of this repository is at {path}")
        found |= set(at.rglob("*.py")) if at.is_dir() else {at}
    return sorted(str(module.relative_to(root)) for module in found)


def mutations_by_line(root: Path, modules: Iterable[str]) -> list[list[Mutation]]:
    """The changes of each line that has any."""
    lines: list[list[Mutation]] = []
    for module in modules:
        found = find_mutations(module, (root / module).read_text())
        found.sort(key=lambda mutation: mutation.lineno)
        lines += [list(group) for _, group in groupby(found, key=lambda change: change.lineno)]
    return lines


def draw(lines: Sequence[Sequence[Mutation]], count: int | None, seed: int) -> list[Mutation]:
    """``count`` lines, all equally likely, one change of each; None: every change of every line."""
    if count is None:
        return [mutation for line in lines for mutation in line]
    chance = random.Random(seed)
    drawn = chance.sample(lines, min(count, len(lines)))
    return sorted(chance.choice(line) for line in drawn)


@dataclass(frozen=True)
class Equivalent:
    """A change that changes nothing, named so that it is found again when its line moves.

    Attributes:
        module, line, becomes: As of `Mutation`.
        reason: Why it changes nothing.
        scope: As of `Mutation`, where a module has the line more than once; None is anywhere.
    """

    module: str
    line: str
    becomes: str
    reason: str
    scope: str | None = None

    def names(self, mutation: Mutation) -> bool:
        """True if a mutation is this change."""
        same = (self.module, self.line, self.becomes)
        named = (mutation.module, mutation.line, mutation.becomes)
        return same == named and self.scope in (None, mutation.scope)


def read_equivalent(file: Path) -> list[Equivalent]:
    """The changes that the file lists."""
    return [Equivalent(**entry) for entry in tomllib.loads(file.read_text())["mutant"]]
