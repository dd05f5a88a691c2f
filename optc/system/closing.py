"""A base of all that is closed at the end of a ``with``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Holds something until it is closed: by `close`, or at the end of a block."""

    @abstractmethod
    def close(self) -> None:
        """Free it; again is allowed."""

    def __enter__(self) -> Self:
        """Itself, which is closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()
