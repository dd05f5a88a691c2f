"""The scheduler on requests that are integers only."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.kv.kv_blocks import HasPrefix
from optc.runtime.scheduling.chunks import pending
from optc.runtime.scheduling.policy import Rank
from optc.runtime.scheduling.scheduler import Scheduler
from tests.runtime.support.jobs import Job, make_world


def test_decodes_come_before_prefills_and_share_the_step() -> None:
    world = make_world(spare=50)
    first = world.add(1, 20)
    world.step()
    world.add(30, 5)
    world.step()
    chunks = world.scheduler.schedule()
    assert [(c.request.id, c.rows) for c in chunks] == [(0, 1), (1, 7)]
    assert first.num_computed == 2


def test_at_most_half_of_the_budget_decodes() -> None:
    world = make_world(budget=8, spare=100)
    for _ in range(20):
        world.add(1, 30)
    for _ in range(5):
        world.step()
    assert world.scheduler.num_running == 4
    assert world.scheduler.num_waiting == 16


def test_requests_are_admitted_in_order_and_a_large_one_is_not_overtaken() -> None:
    world = make_world(longest=64, budget=16, spare=2)
    world.add(8, 20)
    world.step()
    large, small = world.add(63, 1), world.add(1, 2)
    world.step()
    assert large.num_computed == small.num_computed == 0
    while world.scheduler.num_waiting == 2:
        world.step()
    assert large.num_computed > 0
    assert small.num_computed == 0


def test_waiting_for_a_place_does_not_count_as_uses_of_a_prefix() -> None:
    """A request that waits a hundred steps would else look popular to the eviction."""
    world = make_world(budget=2, spare=100)
    world.add(1, 30)
    world.step()
    asked: list[int] = []
    reuse = world.scheduler.blocks.reuse

    def noted(job: HasPrefix, most: int | None) -> int:
        asked.append(len(job.tokens))
        return reuse(job, most)

    with patch.object(world.scheduler.blocks, "reuse", noted):
        world.add(3, 1)
        for _ in range(10):
            world.step()
        assert asked == []
        while world.scheduler.num_waiting:
            world.step()
        assert asked == [3]


def test_the_youngest_is_preempted_and_comes_back_first() -> None:
    world = make_world(longest=32, budget=8, block_size=2)
    first, second = world.add(4, 28), world.add(4, 28)
    waiting = world.add(30, 2)
    while not world.scheduler.preempted:
        world.step()
    assert world.scheduler.preempted == [second]
    assert second.num_computed == 0
    assert [job.id for job in world.scheduler.requests()] == [0, 1, 2]
    assert waiting.num_computed == 0
    world.scheduler.check_integrity()
    assert first.num_computed > 4


def test_blocks_that_only_drafts_hold_are_taken_before_a_request_is_preempted() -> None:
    world = make_world(longest=32)  # 8 blocks
    first, second = world.add(4, 20), world.add(4, 20)
    world.step()
    assert world.blocks.grow(first.tables, 28), "a draft model writes there before the step"
    assert world.blocks.available() == (0,)
    world.step()
    assert not world.scheduler.preempted
    assert [job.num_computed for job in (first, second)] == [5, 5]
    assert world.blocks.available() == (4,)


def test_blocks_that_only_drafts_hold_are_taken_for_a_request_that_waits() -> None:
    world = make_world(longest=32)
    first = world.add(4, 20)
    world.step()
    assert world.blocks.grow(first.tables, 32)
    second = world.add(7, 20)
    world.step()
    assert second.num_computed == 7
    assert not world.scheduler.preempted


def test_removing_a_stranger_is_an_error() -> None:
    world = make_world()
    stranger = Job(9, 1, 2, world.blocks.new_tables())
    with pytest.raises(ValueError, match="not in"):
        world.scheduler.remove(stranger)


def test_broken_queues_are_found() -> None:
    world = make_world()
    world.add(2, 2)
    second = world.add(2, 2)
    second.rank = Rank(-1, 0)
    with pytest.raises(RuntimeError, match=r"^0 running, waiting in the order "):
        world.scheduler.check_integrity()
    second.rank = Rank(0, 1)
    world.scheduler.check_integrity()
    world.scheduler.max_running = -1
    with pytest.raises(RuntimeError, match=r"^0 running, waiting in the order "):
        world.scheduler.check_integrity()
    world.scheduler.max_running = 0
    world.scheduler.check_integrity()
    second.tables.blocks[0].extend(world.blocks.pools[0].take(1))
    with pytest.raises(RuntimeError, match=r"^a waiting request holds blocks$"):
        world.scheduler.check_integrity()


@pytest.mark.parametrize("windows", [(0,), (0, 9), (3, 12)])
@pytest.mark.parametrize(("budget", "spare"), [(2, 0), (8, 0), (32, 12)])
@pytest.mark.parametrize("prefix_cache", [False, True])
def test_hundreds_of_requests_in_virtual_time(
    windows: tuple[int, ...], budget: int, spare: int, prefix_cache: bool
) -> None:
    """Random arrivals and cancellations on tiny pools: everyone ends, no block leaks, and every
    running request that is not preempted gets a row in every step."""
    rng = np.random.default_rng(budget)
    world = make_world(
        windows=windows,
        budget=budget,
        spare=spare,
        longest=48,
        running=6,
        prefix_cache=prefix_cache,
    )
    live: list[Job] = []
    ended = cancelled = 0
    while ended + cancelled < 300:
        if world.made < 300 and len(live) < 30 and rng.random() < 0.5:
            prompt = int(rng.integers(1, 40))
            live.append(world.add(prompt, int(rng.integers(1, 49 - prompt))))
        if live and rng.random() < 0.02:
            world.scheduler.remove(live.pop(int(rng.integers(len(live)))))
            cancelled += 1
        decoding = [job for job in live if job.num_computed == job.num_tokens - 1 > 0]
        before = {job.id: job.num_computed for job in decoding}
        done = world.step() if live else []
        for job in decoding:
            advanced = job.num_computed == before[job.id] + 1
            assert advanced or job in world.scheduler.preempted
        live = [job for job in live if job not in done]
        ended += len(done)
        world.scheduler.check_integrity()
    assert world.blocks.available() == tuple(pool.total for pool in world.blocks.pools)


def test_a_stream_of_short_requests_does_not_starve_a_long_one() -> None:
    """The bound: while it runs, a prefill gets at least half of the budget, less what older
    prefills take; so n tokens take at most 2 n / budget steps after its admission."""
    world = make_world(budget=8, spare=60, longest=64)
    for _ in range(6):
        world.add(1, 40)
    world.step()
    long = world.add(60, 1)
    steps = 0
    while long.num_computed < 60:
        world.add(1, 3)
        world.step()
        steps += bool(long.num_computed)
    assert steps <= 2 * 60 / 8 + 1


def test_a_prefill_chunk_holds_prompts_back_only_while_others_decode() -> None:
    world = make_world(budget=16, spare=50)
    world.scheduler = Scheduler(world.blocks, 16, 8, prefill_chunk=3)
    first = world.add(30, 3)
    assert [chunk.rows for chunk in world.scheduler.schedule()] == [16]  # nobody decodes
    while first.num_tokens == 30:
        world.step()
    world.add(20, 2)
    chunks = world.scheduler.schedule()
    assert [(chunk.request.id, chunk.rows) for chunk in chunks] == [(0, 1), (1, 3)]


def test_a_lost_block_is_found() -> None:
    world = make_world()
    world.add(2, 2)
    world.step()
    world.blocks.pools[0].take(1)  # held by nobody
    with pytest.raises(RuntimeError):
        world.scheduler.check_integrity()


def test_drafts_do_not_count_as_computed_when_the_step_is_committed() -> None:
    world = make_world(budget=16, spare=50)
    job = world.add(6, 20)
    world.step()
    computed = job.num_computed
    job.num_drafted = 3
    chunks = world.scheduler.schedule()
    assert [(c.rows, c.drafted) for c in chunks] == [(4, 3)]
    world.scheduler.commit(chunks)
    assert job.num_computed == computed + 1
    world.scheduler.accept(job, 2)
    assert job.num_computed == computed + 3


def test_held_drafts_are_computed_again_beside_the_next_token_and_before_prompts() -> None:
    world = make_world(budget=8, spare=50)
    job = world.add(6, 40)
    world.step()
    job.num_drafted = 3
    world.scheduler.commit(world.scheduler.schedule())
    job.num_tokens += 3  # two drafts and the token behind them
    world.scheduler.hold(job, 2)
    world.add(20, 30)
    job.num_drafted = 0
    chunks = world.scheduler.schedule()
    assert [(c.request.id, c.rows, c.completes) for c in chunks] == [(0, 3, True), (1, 5, False)]
    world.scheduler.commit(chunks)
    assert (job.num_computed, job.num_held) == (job.num_tokens, 0)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=12), st.data()
)
def test_whatever_is_held_all_end_and_every_decode_advances(
    wanted: list[tuple[int, int]], data: st.DataObject
) -> None:
    world = make_world(budget=16, running=8, spare=20, windows=(0, 2))
    for prompt, output in wanted:
        world.add(prompt, output)
    running: list[Job] = []
    for _ in range(2000):
        if not world.scheduler.num_running + world.scheduler.num_waiting:
            break
        for job in world.scheduler.running:
            left = job.length - job.num_tokens - 1
            drafts = data.draw(st.integers(0, 4)) if job.num_computed >= job.num_prompt - 1 else 0
            job.num_drafted = max(0, min(drafts, left))
        running = [job for job in world.scheduler.running if pending(job) == 1 + job.num_held]
        chunks = world.scheduler.schedule()
        assert sum(chunk.rows for chunk in chunks) <= world.scheduler.token_budget
        given_rows = {chunk.request.id for chunk in chunks}
        assert all(job.id in given_rows or job in world.scheduler.preempted for job in running)
        world.scheduler.commit(chunks)
        for chunk in chunks:
            if not chunk.completes:
                continue
            job, accepted = chunk.request, data.draw(st.integers(0, chunk.drafted))
            job.num_tokens += accepted + 1
            if job.num_tokens >= job.length:
                world.scheduler.remove(job)
            elif accepted:
                world.scheduler.hold(job, accepted)
        world.scheduler.check_integrity()
    assert not world.scheduler.num_running + world.scheduler.num_waiting
