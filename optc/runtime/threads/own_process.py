"""`OwnProcess`: whether an engine's thread is there, which a fork leaves behind."""

from __future__ import annotations

import os

from optc.errors import EngineError


class OwnProcess:
    """The process in which it was made. A fork of it has no other threads and may hold locks that
    nobody releases, so that nothing of an engine works there."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def here(self) -> bool:
        """This is the process, no fork of it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Do nothing in the process itself.

        Raises:
            EngineError: This is a fork.
        """
        if not self.here:
            raise EngineError(
                "a loaded engine does not survive a fork",
                where=f"process {os.getpid()}, forked from {self._pid}",
                hint="call optc.load in each process, after the fork",
            )
