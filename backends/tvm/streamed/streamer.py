"""Weights that lie on the disk as steps use them: read ahead in the steps' order, hot ones kept.

Before a kernel runs, the streamer is told which weights it reads, and of experts those that the
step's rows have chosen. What is not in memory is asked for at once, many megabytes in parallel,
where page faults would read some hundred kilobytes one after the other. Then what the next kernels
will read is asked for, up to a window.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue

import numpy as np

from optc.backends.tvm.streamed.hot_set import HotSet
from optc.backends.tvm.streamed.moving import Mapped
from optc.backends.tvm.streamed.pieces import Int64, Pieces
from optc.backends.tvm.streamed.step_order import StepOrder, Uses
from optc.system.logs.logger import logger
from optc.system.units import byte_text

_LOG = logger(__name__)
#: Most bytes that are asked for before the kernels that read them: enough for a disk's queue, and
#: little beside the memory for pages that do not stay.
WINDOW = 64 << 20
#: Steps between two looks at what is no longer hot.
_LOOK = 64


class Streamer:
    """Follows the steps of one engine. Use it from the thread of the steps.

    Args:
        pieces: Of the engine's weights.
        files: The mapped files by number (``Pieces.files``).
        budget: Most bytes of weights that stay in memory.
        window: Most bytes that are read ahead.

    Attributes:
        hot: What stays.
    """

    def __init__(
        self, pieces: Pieces, files: Sequence[Mapped], budget: int, window: int = WINDOW
    ) -> None:
        self._pieces, self._files, self._window = pieces, files, window
        self.hot = HotSet(pieces.sizes, budget)
        self._order = StepOrder(lambda uses: any(map(pieces.by_expert, uses)), window)
        self._asked = np.zeros(len(pieces.sizes), bool)  # and not used since
        self._steps = 0
        self._refused: deque[int] = deque()  # pieces that the system could not keep
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=_do_all, args=(self._work,), name="optc-weights", daemon=True
        )
        self._thread.start()

    def begin_step(self) -> None:
        """A step begins."""
        self._order.begin_step()
        self.hot.begin_step()
        self._steps += 1
        if self._steps % _LOOK == 0 and (cold := self.hot.cool()):
            self._work.put(partial(self._let_go, cold))
        if self._refused:
            while self._refused:
                self.hot.refuse(self._refused.popleft())
            _LOG.warning(
                "the memory does not suffice for more than %s of weights", byte_text(self.hot.bytes)
            )

    def use(self, uses: Uses, chosen: Int64 | None = None) -> None:
        """A kernel that reads these weights is about to run, of experts only those ``chosen``."""
        self._order.use(uses)
        pieces = self._pieces.of(uses, chosen)
        self._read_ahead(self._missing(pieces, self._window))
        self._asked[pieces] = False
        stay, go = self.hot.use(pieces)
        for move, moved in ((self._let_go, go), (self._keep, stay)):
            if moved:
                self._work.put(partial(move, moved))
        self._order.go_ahead(chosen is not None, partial(self._ask, chosen))

    def wait(self) -> None:
        """Wait until all that was decided is done."""
        done = threading.Event()
        self._work.put(done.set)
        done.wait()

    def close(self) -> None:
        """End the thread; the files may be unmapped then."""
        self._work.put(None)
        self._thread.join()

    def _ask(self, chosen: Int64 | None, uses: Uses, room: int) -> int:
        """Read ahead what a later call uses, up to ``room`` bytes; says how many."""
        missing = self._missing(self._pieces.of(uses, chosen), room)
        if missing:
            self._work.put(partial(self._read_ahead, missing))
        return int(self._pieces.sizes[missing].sum())

    def _missing(self, pieces: Int64, room: int) -> list[int]:
        """The first of these pieces, up to ``room`` bytes, that are neither kept nor asked for."""
        found = pieces[~(self.hot.kept[pieces] | self._asked[pieces])]
        taken = found[np.cumsum(self._pieces.sizes[found]) <= room]
        self._asked[taken] = True
        return taken.tolist()

    def _read_ahead(self, pieces: Sequence[int]) -> None:
        for piece in pieces:
            file, start, size = self._place(piece)
            file.read_ahead(start, size)

    def _keep(self, pieces: Sequence[int]) -> None:
        for piece in pieces:
            file, start, size = self._place(piece)
            try:
                file.keep(start, size)
            except OSError:
                self._refused.append(piece)

    def _let_go(self, pieces: Sequence[int]) -> None:
        for piece in pieces:
            file, start, size = self._place(piece)
            file.let_go(start, size)

    def _place(self, piece: int) -> tuple[Mapped, int, int]:
        found = self._pieces
        file = self._files[int(found.files[piece])]
        return file, int(found.starts[piece]), int(found.sizes[piece])


def _do_all(work: SimpleQueue[Callable[[], None] | None]) -> None:
    while (do := work.get()) is not None:
        do()
