"""`EventLog`: the prefix blocks that a step stored and evicted, as vLLM's consumers read them.

Messages are MessagePack: a batch is the array ``[ts, events, data_parallel_rank]``, an event a map
with its ``type`` (vllm/distributed/kv_events.py of vLLM 0.33).
"""

from __future__ import annotations

import time
from typing import Protocol

import msgspec
import numpy as np

from optc.runtime.kv.prefix_cache import BlockLog
from optc.runtime.kv.prefix_node import Node

#: Where blocks lie, in vLLM's words. Consumers take it as a name.
_MEDIUM = "CPU"


class BlockStored(msgspec.Struct, tag=True, tag_field="type", frozen=True):
    """Blocks whose keys and values are there now.

    Attributes:
        block_hashes: Of the prefixes that end with each.
        parent_block_hash: Of the prefix before the first; None where it begins a text.
        token_ids: Of all blocks, one after the other.
        block_size: Tokens a block.
        lora_id: Differs between any two adapters that were ever loaded; None is the model itself.
        medium: Where they lie.
    """

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str = _MEDIUM


class BlockRemoved(msgspec.Struct, tag=True, tag_field="type", frozen=True):
    """Blocks that are gone."""

    block_hashes: list[int]
    medium: str = _MEDIUM


class AllBlocksCleared(msgspec.Struct, tag=True, tag_field="type", frozen=True):
    """All blocks are gone."""


Event = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, array_like=True, frozen=True):
    """The changes of one step.

    Attributes:
        ts: Seconds since 1970.
        events: In their order.
        data_parallel_rank: Always 0: an engine is one rank.
    """

    ts: float
    events: list[Event]
    data_parallel_rank: int = 0


class Publish(Protocol):
    """Takes batches until it is closed."""

    def __call__(self, batch: EventBatch) -> None:
        """Publish a batch soon."""
        ...

    def close(self) -> None:
        """Take no more."""
        ...


class StepLog(BlockLog, Protocol):
    """Told of blocks that come and go, and of the ends of steps."""

    def flush(self) -> None:
        """A step has ended."""
        ...

    def close(self) -> None:
        """All blocks are gone, and no more will come."""
        ...


class EventLog:
    """Collects the events of a step. Used by the engine's thread alone.

    Blocks of requests with a salt are left out: nobody else may share them, nor see their tokens.

    Args:
        publish: Gets each batch, and waits for nothing.
    """

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._events: list[Event] = []

    def stored(self, salt: str, node: Node) -> bool:
        """A block has got its keys and values.

        Args:
            salt: As of the prefix cache: an adapter's generation, a zero, and the request's own.
            node: The block, with its digest.

        Returns:
            True if that was told.
        """
        generation, _, own = salt.partition("\0")
        parent = node.parent
        if own or parent is None:
            return False
        tokens = np.frombuffer(node.key, np.int32).tolist()
        before = None if parent.parent is None else number_of(parent.digest)
        lora = int(generation) if generation else None
        last = self._events[-1] if self._events else None
        this = number_of(node.digest)
        if isinstance(last, BlockStored) and last.block_hashes[-1] == before:
            last.block_hashes.append(this)  # one run of blocks is one event
            last.token_ids.extend(tokens)
        else:
            self._events.append(BlockStored([this], before, tokens, len(tokens), lora))
        return True

    def removed(self, node: Node) -> None:
        """A block that was told of is gone."""
        last = self._events[-1] if self._events else None
        if isinstance(last, BlockRemoved):
            last.block_hashes.append(number_of(node.digest))
        else:
            self._events.append(BlockRemoved([number_of(node.digest)]))

    def flush(self) -> None:
        """Publish what has come together, if anything has."""
        if self._events:
            events, self._events = self._events, []
            self._publish(EventBatch(time.time(), events))

    def close(self) -> None:
        """Tell that all blocks are gone, and publish no more."""
        self._events.append(AllBlocksCleared())
        self.flush()
        self._publish.close()


def number_of(digest: bytes) -> int:
    """A digest as the 64 bits that consumers take."""
    return int.from_bytes(digest[:8], "big")
