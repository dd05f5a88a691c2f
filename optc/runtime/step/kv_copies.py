"""Keys and values that change places after a step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from optc.runtime.executable.executable import Executable
from optc.runtime.kv.kv_blocks import BlockCopy, KVBlocks
from optc.runtime.step.batch import copied_slots
from optc.runtime.step.logit_rows import LogitRows
from optc.runtime.step.tree import Accepted, compacted_slots
from optc.runtime.step.verifier import Verdict


def move_kv(
    executable: Executable,
    blocks: KVBlocks,
    copies: Sequence[BlockCopy],
    draws: Sequence[LogitRows],
    verdicts: Sequence[Verdict],
) -> None:
    """Copy the blocks of requests that forked, and compact the paths accepted in trees."""
    accepted = [
        Accepted(draw.request, draw.request.num_tokens, verdict.path)
        for draw, verdict in zip(draws, verdicts, strict=True)
        if draw.parents is not None
    ]
    groups, size = len(blocks.pools), blocks.block_size
    for slots in chain(copied_slots(copies, size), compacted_slots(accepted, groups, size)):
        executable.copy_kv(*slots)
