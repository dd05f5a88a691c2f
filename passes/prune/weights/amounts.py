"""The amount of a weight that is pruned: a share of it, or all but n of every m inputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from optc.errors import InputError

#: N:M as they are written: of every m inputs of a row n are kept.
PATTERNS = ("2:4", "4:8")
_DECIMAL = re.compile(r"\d*\.?\d+", re.ASCII)


@dataclass(frozen=True)
class Amount:
    """The part of a weight [N, K] that becomes zero.

    Attributes:
        share: Of its weights, 0 to less than 1.
        kept: n of a pattern n:m; 0 if there is none, and any may stay.
        of: m of a pattern.
    """

    share: float
    kept: int = 0
    of: int = 0

    @property
    def label(self) -> str:
        """For reports: ``2:4``, ``50 %``."""
        return f"{self.kept}:{self.of}" if self.of else f"{100 * self.share:g} %"

    def fits(self, columns: int) -> bool:
        """True if a weight of so many inputs can have the pattern."""
        return not self.of or columns % self.of == 0


def amount_of(sparsity: float, pattern: str, where: str) -> Amount:
    """A share, or the pattern if there is one.

    Raises:
        InputError: The share is none, or the pattern is not known.
    """
    if not pattern:
        return _share(sparsity, str(sparsity), where)
    return _pattern(pattern, where)


@dataclass(frozen=True)
class LayerAmounts:
    """Amounts by the names of tensors.

    Attributes:
        default: Of weights that no glob matches.
        by_glob: Globs with amounts; of several that match, the last one holds.
        where: The pass, for messages.
    """

    default: Amount
    by_glob: tuple[tuple[str, Amount], ...]
    where: str

    @classmethod
    def read(cls, default: Amount, texts: Iterable[str], where: str) -> LayerAmounts:
        """Amounts from texts ``glob=share`` and ``glob=n:m``.

        Raises:
            InputError: A text is none.
        """
        found = []
        for text in texts:
            glob, equals, given = text.rpartition("=")
            if not equals or not glob:
                raise InputError(f"{text!r} is not tensor=sparsity", where=where)
            read = _pattern if ":" in given else _decimal
            found.append((glob, read(given, where)))
        return cls(default, tuple(found), where)

    def of(self, name: str) -> Amount:
        """The amount of the tensor ``name``."""
        fits = (amount for glob, amount in reversed(self.by_glob) if fnmatchcase(name, glob))
        return next(fits, self.default)

    def strange(self, names: Sequence[str]) -> list[str]:
        """The globs that match none of ``names``."""
        globs = (glob for glob, _ in self.by_glob)
        return [glob for glob in globs if not any(fnmatchcase(name, glob) for name in names)]

    def check_names(self, names: Sequence[str]) -> None:
        """Check that every glob matches one of ``names``.

        Raises:
            InputError: One does not.
        """
        for glob in self.strange(names)[:1]:
            raise InputError(
                f"no linear layer has a weight {glob!r}",
                where=self.where,
                hint=f"there are {', '.join(sorted(names)[:4])}, …",
            )


def _decimal(text: str, where: str) -> Amount:
    if not _DECIMAL.fullmatch(text):
        raise InputError(f"{text!r} is no sparsity", where=where, hint="0.5, or 2:4")
    return _share(float(text), text, where)


def _share(share: float, text: str, where: str) -> Amount:
    if not 0 <= share < 1:
        raise InputError(f"sparsity={text} is not 0 to less than 1", where=where)
    return Amount(share)


def _pattern(text: str, where: str) -> Amount:
    if text not in PATTERNS:
        raise InputError(
            f"{text!r} is no pattern", where=where, hint=f"one of {', '.join(PATTERNS)}"
        )
    kept, of = map(int, text.split(":"))
    return Amount(1 - kept / of, kept, of)
