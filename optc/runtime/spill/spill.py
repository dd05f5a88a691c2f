"""`Spill`: saves blocks of the prefix cache that are evicted, and gives them back."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from optc.runtime.executable.executable import Int32
from optc.runtime.spill.stores import Bytes, Store

#: Weight of the newest measurement in a running mean.
_NEWEST = 0.2
#: Rows a request of steps that count as prefill.
_PREFILL_ROWS = 4
#: Where restoring is the slower, it is measured again once in so many hits.
_PROBE = 64


class BlockIO(Protocol):
    """The methods that are needed of an `optc.runtime.executable.executable.Executable`."""

    def read_blocks(self, group: int, blocks: Int32) -> Bytes:
        """[n, bytes] contents of blocks."""
        ...

    def write_blocks(self, group: int, blocks: Int32, data: Bytes) -> None:
        """Replace contents of blocks."""
        ...


class Spill:
    """Contents of evicted blocks by KV group and digest of their prefix.

    A hit is restored where that is the faster: the mean time to restore a block is compared with
    the mean time to compute a token of a prompt, both measured as they happen.

    Args:
        store: Where they go.
        blocks: Reads and writes the KV pools.
        clock: Seconds of a monotonic clock.
    """

    def __init__(
        self,
        store: Store,
        blocks: BlockIO,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._store = store
        self._blocks = blocks
        self._clock = clock
        self._restore_s: float | None = None  # a block of one group
        self._prefill_s: float | None = None  # a token
        self._refused = 0
        self.restored_blocks = 0

    @property
    def num_blocks(self) -> int:
        """Blocks in the store."""
        return len(self._store)

    def has(self, group: int, digest: bytes) -> bool:
        """True if the block of a prefix was spilled."""
        return (group, digest) in self._store

    def touch(self, group: int, digest: bytes) -> None:
        """Make a block that was spilled the last to be forgotten."""
        self._store.touch((group, digest))

    def save(self, group: int, digest: bytes, block: int) -> None:
        """Keep what a block holds; the block may be overwritten afterwards."""
        key = (group, digest)
        if key in self._store:  # the same prefix has the same keys and values
            self._store.touch(key)
        else:
            self._store.put(key, self._blocks.read_blocks(group, _one(block))[0])

    def load(self, group: int, digest: bytes, block: int) -> bool:
        """Fill a block; False, and nothing done, if what it needs is lost."""
        began = self._clock()
        data = self._store.get((group, digest))
        if data is None:
            return False
        self._blocks.write_blocks(group, _one(block), data[None])
        self._restore_s = _mean(self._restore_s, self._clock() - began)
        self.restored_blocks += 1
        return True

    def observe_step(self, rows: int, requests: int, seconds: float) -> None:
        """Take note of a step if its rows are mostly of prompts."""
        if rows >= _PREFILL_ROWS * requests:
            self._prefill_s = _mean(self._prefill_s, seconds / rows)

    def pays(self, tokens: int, blocks: int) -> bool:
        """True if to restore ``blocks`` blocks, of all groups, instead of computing ``tokens``."""
        if self._restore_s is None or self._prefill_s is None:
            return True
        if blocks * self._restore_s <= tokens * self._prefill_s:
            return True
        self._refused += 1
        return self._refused % _PROBE == 0

    def close(self) -> None:
        """Give the store back."""
        self._store.close()


def chain(parent: bytes, key: bytes) -> bytes:
    """Digest of a prefix from that of the prefix before its last block, and the block's tokens."""
    return hashlib.blake2b(key, key=parent, digest_size=16).digest()


def root_digest(salt: str) -> bytes:
    """Digest of the empty prefix of a salt."""
    return hashlib.blake2b(salt.encode(), digest_size=16).digest()


def _one(block: int) -> Int32:
    return np.array([block], np.int32)


def _mean(mean: float | None, value: float) -> float:
    return value if mean is None else mean + _NEWEST * (value - mean)
