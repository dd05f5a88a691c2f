"""`LineWriter`: lines for a file or a pipe, written by a thread: who serves never waits for a
reader."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from optc.system.logs.logger import logger

_LOG = logger(__name__)
#: Descriptor of standard output.
STDOUT = 1
#: Lines that may wait.
_MOST = 4096
#: Seconds that the last lines have to be written in, once nothing else is to be done.
_CLOSE_S = 1.0

#: A line without its end, or what makes it; that may give None for no line.
Line = str | Callable[[], str | None]


class LineWriter:
    """Writes lines in their order. Where nobody takes them any more it stops; where they are taken
    too slowly, lines beyond a number are lost. The log says both.

    Args:
        descriptor: Open for writing.
        name: Of what it is, for the log.
        most: Lines that may wait to be written.
    """

    def __init__(self, descriptor: int, name: str, most: int = _MOST) -> None:
        self._descriptor = descriptor
        self._name = name
        self._most = most
        self._lines: deque[Line] = deque()
        self._ready = threading.Condition()
        self._closed = self._stopped = False
        self.lost = 0
        # A daemon: a reader that never reads must not keep the process.
        self._thread = threading.Thread(target=self._run, name=f"lines-{name}", daemon=True)
        self._thread.start()

    def __call__(self, line: Line) -> None:
        """Have a line written."""
        with self._ready:
            if self._stopped:
                return
            if len(self._lines) >= self._most:
                self.lost += 1
                told = self.lost == 1
            else:
                self._lines.append(line)
                self._ready.notify()
                return
        if told:
            _LOG.warning("%s takes lines too slowly: some are lost", self._name)

    def close(self, timeout_s: float = _CLOSE_S) -> bool:
        """Write what waits, for so long at most, and take no more. False if lines were left."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        self._thread.join(timeout_s)
        left = self.lost + len(self._lines)
        if left and not self._stopped:
            _LOG.warning("%s did not take %d lines", self._name, left)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (line := self._next()) is not None:
            text = line if isinstance(line, str) else line()
            if text is None:
                continue
            try:
                self._write(text.encode("utf-8", "backslashreplace") + b"\n")
            except OSError as error:
                with self._ready:
                    self._stopped = True
                    self._lines.clear()
                reason = error.strerror or error
                _LOG.warning("%s takes no lines any more: %s", self._name, reason)
                return

    def _next(self) -> Line | None:
        """The next line, once there is one; None once there will be none. A line stays among those
        that wait until it is written."""
        with self._ready:
            while not self._lines and not self._closed:
                self._ready.wait()
            return self._lines.popleft() if self._lines else None

    def _write(self, data: bytes) -> None:
        # Not by a stream of Python's: a thread that waits in one holds a lock that the interpreter
        # needs at its end.
        while data:
            data = data[os.write(self._descriptor, data) :]
