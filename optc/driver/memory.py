"""Memory that a compile really takes: anonymous and shared pages of all its processes together.

File-backed pages (memory-mapped weights) are left out: the kernel drops them when it needs room.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

from optc.errors import InputError

_PERIOD_S = 0.02
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(text: str, where: str) -> int:
    """Bytes from ``3GB``, ``2.5GiB``, ``512M`` or a plain number.

    Raises:
        InputError: Not a positive size.
    """
    lowered = text.strip().lower().removesuffix("b")
    number = lowered.rstrip("kmgti")
    unit = lowered[len(number) :]
    factor = {**_UNITS, **_BINARY_UNITS}.get(unit)
    try:
        value = int(float(number) * factor) if factor else 0
    except (ValueError, OverflowError):
        value = 0
    if value <= 0:
        raise InputError(f"{text!r} is no size", where=where, hint="for example 3GB or 2GiB")
    return value


def anonymous_bytes(pid: int) -> int:
    """Anonymous and shared-memory bytes of one process now; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    kilobytes = [
        int(line.split()[1])
        for line in status.splitlines()
        if line.startswith(("RssAnon:", "RssShmem:"))
    ]
    return 1024 * sum(kilobytes)


def process_tree(root: int) -> list[int]:
    """``root`` and all its descendants that live now."""
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue.extend(_children(pid))
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return children
    for thread in threads:
        try:
            text = Path(f"/proc/{pid}/task/{thread}/children").read_text()
        except OSError:
            continue
        children.extend(int(child) for child in text.split())
    return children


class PeakMemory:
    """Samples this process and its descendants while the ``with`` block runs.

    Attributes:
        peak_bytes: Largest sum of `anonymous_bytes` seen so far.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="optc-memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        """Start sampling."""
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop sampling."""
        self._stop.set()
        self._thread.join()

    def sample(self) -> None:
        """Look once."""
        total = sum(anonymous_bytes(pid) for pid in process_tree(os.getpid()))
        self.peak_bytes = max(self.peak_bytes, total)

    def _watch(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            self.sample()
