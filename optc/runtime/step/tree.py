"""Trees of drafts in a step: where their rows stand, and which keys and values move afterwards.

The rows of a tree lie one after the other, as those of a chain do, and so do their slots. Once
the verifier has chosen a path, its keys and values move up behind the known tokens, so that every
later step is linear again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from optc.runtime.executable.executable import Int32
from optc.runtime.requests.request import Request
from optc.runtime.scheduling.chunks import Chunk, Counted


class HasDrafts(Counted, Protocol):
    """Whose drafts may be a tree."""

    @property
    def draft_parents(self) -> Sequence[int] | None:
        """[num_drafted] draft that each one follows, -1 for the last known token; None is a
        chain."""
        ...


R = TypeVar("R", bound=HasDrafts)


def place_drafts(
    chunks: Sequence[Chunk[R]], query_starts: Int32, indices: Int32
) -> tuple[Int32, Int32 | None]:
    """Positions [T] and ``tree_parent`` [T] of a step; None if no request drafts a tree.

    Args:
        chunks: The step's.
        query_starts: [B + 1] first row of each chunk.
        indices: [T] KV index of each row; its position unless it belongs to a tree.
    """
    if all(c.request.draft_parents is None or not c.drafted for c in chunks):
        return indices, None
    parents = np.arange(-1, len(indices) - 1, dtype=np.int32)
    parents[query_starts[:-1]] = -1
    positions = indices.copy()
    for chunk, end in zip(chunks, query_starts[1:].tolist(), strict=True):
        drafted = chunk.request.draft_parents
        if drafted is None:
            continue
        root = end - chunk.drafted - 1
        for row, parent in enumerate(drafted[: chunk.drafted], root + 1):
            parents[row] = root + 1 + parent
            positions[row] = positions[parents[row]] + 1
    return positions, parents


def deepest_path(parents: Sequence[int] | None, drafted: int) -> int:
    """Drafts on the longest path among the first ``drafted`` ones; ``parents`` as of
    `optc.runtime.speculative.proposer.Drafts`."""
    if parents is None:
        return drafted
    depths: list[int] = []
    for parent in parents[:drafted]:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return max(depths, default=0)


class Accepted(NamedTuple):
    """The drafts of a request that were accepted.

    Attributes:
        request: Whose.
        start: KV index of its first draft.
        path: Indices of the drafts, ascending.
    """

    request: Request
    start: int
    path: tuple[int, ...]


def compacted_slots(
    accepted: Sequence[Accepted], groups: int, block_size: int
) -> Iterator[tuple[int, Int32, Int32]]:
    """Group, source slots [n] and target slots [n] for `Executable.copy_kv`, so that each accepted
    path lies where a chain would; nothing where it does already."""
    moved = [one for one in accepted if one.path and one.path[-1] != len(one.path) - 1]
    if not moved:
        return
    for group in range(groups):
        sources: list[Int32] = []
        targets: list[Int32] = []
        for request, start, path in moved:
            table = np.array(request.tables.blocks[group], np.int32)
            source = start + np.array(path, np.int32)
            target = start + np.arange(len(path), dtype=np.int32)
            away = source != target
            for slots, at in ((sources, source[away]), (targets, target[away])):
                slots.append(table[at // block_size] * block_size + at % block_size)
        yield group, np.concatenate(sources), np.concatenate(targets)
