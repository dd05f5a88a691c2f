"""`NamedOnce`: names from requests, each of which the log mentions once."""

from __future__ import annotations

#: Names that are mentioned, and characters of each: clients choose them, and may send others for
#: ever, which must fill neither the log nor the memory.
_NAMES, _CHARACTERS = 256, 64


class NamedOnce:
    """Remembers which names were mentioned; beyond 256 of them no more are."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __len__(self) -> int:
        """Names that were mentioned."""
        return len(self._names)

    def first(self, name: str) -> str | None:
        """The name as the log is to mention it, 64 characters of it at most; None if it was
        mentioned before, or too many others were."""
        short = name[:_CHARACTERS]
        if short in self._names or len(self._names) >= _NAMES:
            return None
        self._names.add(short)
        return short
