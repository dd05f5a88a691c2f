"""Requests that are integers only, and a scheduler over them in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from optc.runtime.executable.executable import Int32
from optc.runtime.kv.kv_blocks import BlockTables, KVBlocks, blocks_needed
from optc.runtime.scheduling.policy import Rank
from optc.runtime.scheduling.scheduler import Scheduler


@dataclass(eq=False)
class Job:
    """A request that wants ``length`` tokens in the end."""

    id: int
    num_tokens: int
    length: int
    tables: BlockTables
    num_computed: int = 0
    salt: str = ""
    leader_id: int = -1
    num_drafted: int = 0
    num_held: int = 0
    num_prompt: int = 0
    priority: int = 0
    rank: Rank = field(default_factory=lambda: Rank(0, 0))
    idle: bool = False
    score_row: int | None = None

    @property
    def tokens(self) -> Int32:
        return np.zeros(self.num_tokens, np.int32)


@dataclass
class World:
    """A scheduler and its virtual time, one tick a step."""

    scheduler: Scheduler[Job]
    blocks: KVBlocks
    made: int = 0
    rows: int = 0

    def add(self, prompt: int, output: int, priority: int = 0) -> Job:
        tables = self.blocks.new_tables()
        job = Job(
            self.made,
            prompt,
            prompt + output,
            tables,
            num_prompt=prompt,
            priority=priority,
            leader_id=self.made,
        )
        self.made += 1
        self.scheduler.add(job)
        return job

    def step(self) -> list[Job]:
        """Run one step; the requests that ended."""
        chunks = self.scheduler.schedule()
        assert sum(chunk.rows for chunk in chunks) <= self.scheduler.token_budget
        self.rows += sum(chunk.rows for chunk in chunks)
        self.scheduler.commit(chunks)
        done = []
        for chunk in chunks:
            assert chunk.completes == (chunk.request.num_computed == chunk.request.num_tokens)
            if chunk.completes:
                chunk.request.num_tokens += 1
                if chunk.request.num_tokens >= chunk.request.length:
                    self.scheduler.remove(chunk.request)
                    done.append(chunk.request)
        return done


def make_world(
    *,
    windows: tuple[int, ...] = (0,),
    longest: int = 64,
    budget: int = 8,
    running: int = 64,
    spare: int = 0,
    block_size: int = 4,
    prefix_cache: bool = False,
) -> World:
    totals = tuple(blocks_needed(longest, budget, w, block_size) + spare for w in windows)
    blocks = KVBlocks(windows, totals, block_size, prefix_cache=prefix_cache)
    return World(Scheduler(blocks, budget, running), blocks)
