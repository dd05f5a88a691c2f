"""Memory that a compile really takes: anonymous and shared pages of all its processes together.

File-backed pages (memory-mapped weights) are left out: the kernel drops them when it needs room.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Sequence
from types import FrameType, TracebackType

from optc.errors import InputError
from optc.system.units import byte_text

_PERIOD_S = 0.02
#: Looks at a tree before it is asked for again: reading who has children takes longest.
_LOOKS_PER_TREE = 5
#: Of /proc/PID/status, and what its lines count.
_ANONYMOUS, _KIB = (b"RssAnon:", b"RssShmem:"), 1024
#: Bytes of such a file that are read; more only of command lines, which are compared.
_MOST = 1 << 16
#: Field 28 of /proc/PID/stat, counted from the third: the first behind the program's name.
_START_OF_STACK = 25


def anonymous_bytes(pid: int) -> int:
    """Anonymous and shared-memory bytes of one process now; 0 if it has ended."""
    try:
        status = _read(f"/proc/{pid}/status")
    except OSError:
        return 0
    lines = (line for line in status.splitlines() if line.startswith(_ANONYMOUS))
    return _KIB * sum(int(line.split()[1]) for line in lines)


def process_tree(root: int) -> list[int]:
    """``root`` and all its descendants that live now."""
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue.extend(_children(pid))
    return found


def bytes_of(processes: Sequence[int]) -> int:
    """`anonymous_bytes` of processes together.

    A process that was forked and has not executed a program yet has its parent's pages, and the two
    count once: where a compiler starts a linker they would be its memory twice.
    """
    if len(processes) == 1:
        return anonymous_bytes(processes[0])
    largest: dict[tuple[bytes, bytes], int] = {}
    for pid in processes:
        program = _program(pid)
        largest[program] = max(largest.get(program, 0), anonymous_bytes(pid))
    return sum(largest.values())


def tree_bytes(root: int) -> int:
    """`bytes_of` ``root`` and all its descendants."""
    return bytes_of(process_tree(root))


def _program(pid: int) -> tuple[bytes, bytes]:
    """A key that a process shares with its parent until it executes a program of its own: the start
    of its stack, which is random, and its command line."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        return fields[_START_OF_STACK], _read(f"/proc/{pid}/cmdline")
    except OSError:  # it has ended
        return str(pid).encode(), b""


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return children
    for thread in threads:
        try:
            text = _read(f"/proc/{pid}/task/{thread}/children")
        except OSError:
            continue
        children.extend(map(int, text.split()))
    return children


def _read(path: str) -> bytes:
    # By the descriptor: all of it happens fifty times a second beside a compile.
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _MOST)
    finally:
        os.close(file)


class PeakMemory:
    """Samples this process and its descendants while the ``with`` block runs.

    Args:
        limit_bytes: Beyond it the block is interrupted and ends in an `InputError`; 0 is no limit.
            Only the main thread can be interrupted; elsewhere the error comes at the block's end.
        what: Names what the block does, for the error.

    Attributes:
        peak_bytes: Largest `tree_bytes` seen so far.
        foretold_bytes: What is predicted to be needed, once that is known; for the error.
    """

    def __init__(self, limit_bytes: int = 0, what: str = "the compile") -> None:
        self.peak_bytes = self.foretold_bytes = 0
        self._what = what
        self._limit_bytes = limit_bytes
        self._interrupts = limit_bytes > 0 and (
            threading.current_thread() is threading.main_thread()
        )
        self._interrupted = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="optc-memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        """Start sampling."""
        if self._interrupts:
            self._handler = signal.signal(signal.SIGUSR2, self._interrupt)
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop sampling.

        Raises:
            InputError: The limit was exceeded.
        """
        self._interrupted = True  # one that comes from now on would escape
        self._stop.set()
        self._thread.join()
        if self._interrupts:
            signal.signal(signal.SIGUSR2, self._handler)
        if self._exceeded and (kind is None or issubclass(kind, KeyboardInterrupt)):
            raise InputError(
                f"{self._what} took {self.peak_bytes:,} bytes of memory, "
                f"but {self._limit_bytes:,} are allowed",
                where="--max-ram",
                hint=self._need(),
            )

    def _need(self) -> str:
        """The hint: the memory that is to be allowed."""
        if self.foretold_bytes > self._limit_bytes:
            return f"allow more: {byte_text(self.foretold_bytes)} are predicted to be needed"
        return "allow more, a fifth beyond what 'optc plan' predicts"

    def sample(self) -> int:
        """Look once; returns the bytes of all processes now."""
        return self._look(process_tree(os.getpid()))

    def _look(self, processes: Sequence[int]) -> int:
        total = bytes_of(processes)
        self.peak_bytes = max(self.peak_bytes, total)
        return total

    @property
    def _exceeded(self) -> bool:
        return 0 < self._limit_bytes < self.peak_bytes

    def _watch(self) -> None:
        processes: list[int] = []
        for look in itertools.count():
            if self._stop.wait(_PERIOD_S):
                return
            if look % _LOOKS_PER_TREE == 0:
                processes = process_tree(os.getpid())
            self._look(processes)
            if self._exceeded and self._interrupts and not self._interrupted:
                # A real signal, unlike _thread.interrupt_main, also ends a wait for a child; it
                # is repeated because one that comes just before the wait begins does not.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self._interrupted:  # a second one would disturb the cleaning up
            self._interrupted = True
            raise KeyboardInterrupt
