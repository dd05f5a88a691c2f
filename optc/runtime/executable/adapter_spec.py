"""The room for adapters in an engine; written in the manifest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.runtime.executable.block_hadamard import BLOCKS
from optc.runtime.executable.row_ranges import Range, rows_of
from optc.system.foreign.typed_json import Count, Positive

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class AdapterPart:
    """Columns ``start:stop`` of a linear layer's result are the source weight ``name``'s rows.

    Attributes:
        of: How many rows the source weight has, where the columns are some of them or all of them
            in another order, such as the heads of a fused projection; 0 where they are all rows.
        ranges: Which rows then.
    """

    name: str
    start: Count
    stop: Count
    of: Count = 0
    ranges: tuple[Range, ...] = ()

    def __post_init__(self) -> None:
        if not self.start < self.stop:
            raise ValueError(f"the columns {self.start}:{self.stop} of {self.name[:80]!r} are none")
        if not self.of:
            return
        for first, step, count in self.ranges:
            last = first + (count - 1) * step
            if count < 1 or not (0 <= first < self.of and 0 <= last < self.of):
                raise ValueError(f"{[first, step, count]} are no rows of {self.of}")
        if sum(count for _, _, count in self.ranges) != self.stop - self.start:
            raise ValueError("'ranges' are not as many rows as 'start' and 'stop' state")

    @property
    def source_rows(self) -> int:
        """The number of rows of the source weight."""
        return self.of or self.stop - self.start

    def taken(self, up: Float32) -> Float32:
        """The rows of ``up`` [`source_rows`, r] that the columns are."""
        return up[rows_of(self.ranges)] if self.of else up


@dataclass(frozen=True)
class AdapterModule:
    """A linear layer [k -> n] of the engine: one source weight, or several that were merged.

    Attributes:
        k: Width of its input.
        n: Width of its result.
        parts: What its columns are.
        hadamard: Channels of a block of the rotation that its input comes in
            (`optc.runtime.executable.block_hadamard`), so that A is rotated too; 0 is none.
    """

    k: Positive
    n: Positive
    parts: tuple[AdapterPart, ...]
    hadamard: Count = 0

    def __post_init__(self) -> None:
        for part in self.parts:
            if part.stop > self.n:
                raise ValueError(f"{part.name[:80]!r} ends at column {part.stop} of {self.n}")
        if self.hadamard and (self.hadamard not in BLOCKS or self.hadamard > self.k):
            raise ValueError(f"'hadamard' is {self.hadamard}, none of {BLOCKS} within {self.k}")


@dataclass(frozen=True)
class AdapterSpec:
    """Room for adapters.

    Attributes:
        max: Adapters that can be loaded at once.
        rank: Largest rank.
        modules: The linear layers that take adapters, in the engine's order.
    """

    max: Positive
    rank: Positive
    modules: tuple[AdapterModule, ...]


@dataclass(frozen=True)
class ModuleWeights:
    """One adapter's weights of one module, as the engine reads them; rows add ``x @ a @ b``.

    Attributes:
        a: [k, parts * rank], part after part, ranks padded with zeros.
        b: [rank, n], the adapter's scaling included.
    """

    a: Float32
    b: Float32
