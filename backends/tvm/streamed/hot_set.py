"""The pieces that stay in memory: those that steps use most often, within a budget.

The count of a piece is that of the steps that used it, older ones for less, so that what is hot
may change. A piece stays once it was used in a good share of the steps, where there is room, or in
the place of pieces that were used clearly less often (least frequently used, with aging: Robinson
and Devarakonda, 1990). Weights that every step uses come before experts thereby, and frequent
experts before rare ones. Rare ones stay in the page cache for as long as the system likes, which
knows best what was used just now; it does not know that a prompt, which reads all experts, says
nothing of what comes.
"""

from __future__ import annotations

import numpy as np

from optc.backends.tvm.streamed.pieces import Int64

#: Steps after which a use counts for half.
HALF_LIFE = 128
#: Share of the steps that must have used a piece for it to stay, as if so many more had not, and
#: the share below which it no longer stays.
HOT, _PRIOR, _COOL = 0.5, 8.0, 0.25
#: A piece takes another's place if its count is so many times that one's and so much more: to
#: exchange two that are equally hot costs a read and gains nothing.
_TIMES, _MORE = 1.25, 2.0
#: Counts grow with the weight of a use; they are divided by it before they overflow.
_LARGE = 1e100


class HotSet:
    """Decides; moves nothing.

    Args:
        sizes: int64 [n], bytes of the pieces.
        budget: Most bytes that stay.

    Attributes:
        kept: bool [n], which pieces stay.
        bytes: Of those.
    """

    def __init__(self, sizes: Int64, budget: int) -> None:
        self._sizes, self._budget = sizes, budget
        self._counts = np.zeros(len(sizes))
        self._steps = 0.0  # counted as uses are
        self._weight = 1.0
        self._least = 0.0  # no kept piece has a lower count
        self.kept = np.zeros(len(sizes), bool)
        self.bytes = 0

    def count_of(self, piece: int) -> float:
        """Steps that used a piece, each for as much as it counts now."""
        return float(self._counts[piece] / self._weight)

    def begin_step(self) -> None:
        """Later uses count for more than earlier ones."""
        self._weight *= 2 ** (1 / HALF_LIFE)
        if self._weight > _LARGE:
            self._counts /= self._weight
            self._least /= self._weight
            self._steps /= self._weight
            self._weight = 1.0
        self._steps += self._weight

    def use(self, pieces: Int64) -> tuple[list[int], list[int]]:
        """Count one use of each; pieces that stay from now on, and pieces that no longer do."""
        self._counts[pieces] += self._weight
        stay: list[int] = []
        go: list[int] = []
        hot = self._counts[pieces] >= HOT * (self._steps + _PRIOR * self._weight)
        for piece in pieces[hot & ~self.kept[pieces]].tolist():
            size = int(self._sizes[piece])
            if self.bytes + size > self._budget:
                leaving = self._colder(piece, self.bytes + size - self._budget)
                if not leaving:
                    continue
                go += leaving
                self.kept[leaving] = False
                self.bytes -= int(self._sizes[leaving].sum())
            self.kept[piece] = True
            self.bytes += size
            stay.append(piece)
        self._least = min(self._least, *self._counts[stay]) if stay else self._least
        return stay, go

    def cool(self) -> list[int]:
        """Pieces that no longer stay, as few steps used them lately."""
        cold = np.flatnonzero(self.kept & (self._counts < _COOL * self._steps))
        self.kept[cold] = False
        self.bytes -= int(self._sizes[cold].sum())
        return cold.tolist()

    def refuse(self, piece: int) -> None:
        """The system had no memory for a piece: it does not stay, nor will more than do now."""
        if self.kept[piece]:
            self.kept[piece] = False
            self.bytes -= int(self._sizes[piece])
        self._budget = self.bytes

    def _colder(self, piece: int, needed: int) -> list[int]:
        """The kept pieces that are used least, ``needed`` bytes of them; none if those are not
        clearly colder than ``piece``."""
        most = (self._counts[piece] - _MORE * self._weight) / _TIMES
        if self._least >= most:
            return []
        kept = np.flatnonzero(self.kept)
        if not kept.size:
            return []
        order = kept[np.argsort(self._counts[kept], kind="stable")]
        self._least = float(self._counts[order[0]])
        colder = order[self._counts[order] < most]
        count = int(np.searchsorted(np.cumsum(self._sizes[colder]), needed)) + 1
        return [] if count > len(colder) else colder[:count].tolist()
