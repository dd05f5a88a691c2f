"""`Kind`: something that may stand where a model is expected, and how it is recognized."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Kind:
    """One kind of file or folder that is no model that optc imports.

    Attributes:
        what: It is, in a few words.
        hint: What the user can do.
        signs: Patterns of names relative to the folder, of which one occurs; a folder's ends with
            a slash.
        also: Patterns that must all occur beside it.
    """

    what: str
    hint: str
    signs: tuple[str, ...]
    also: tuple[str, ...] = ()

    def sign(self, names: Collection[str]) -> str | None:
        """The first of ``names`` by which it is recognized; None where it is something else."""
        if not all(matching(names, (pattern,)) for pattern in self.also):
            return None
        return next(iter(matching(names, self.signs)), None)


def matching(names: Collection[str], patterns: Collection[str]) -> list[str]:
    """Those of ``names`` that match one of ``patterns``. A star stops at a slash, as in a shell."""
    return [
        name
        for name in names
        if any(
            pattern.rstrip("/").count("/") == name.rstrip("/").count("/")
            and pattern.endswith("/") == name.endswith("/")
            and fnmatchcase(name.lower(), pattern)
            for pattern in patterns
        )
    ]


def some(names: Collection[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    shown = [name[:100] for name in list(names)[:most]]
    left = len(names) - len(shown)
    return ", ".join(shown) + (f" and {left} more" if left else "")
