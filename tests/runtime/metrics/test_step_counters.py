"""What is added to the counters of the engine and of its requests, and what a snapshot says."""

from __future__ import annotations

from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.metrics.step_counters import count_drafts, count_queues, snapshot
from optc.runtime.params import SamplingParams
from optc.runtime.speculative.proposer import DraftOutcome
from optc.runtime.spill.spill import Spill
from optc.runtime.spill.stores import HostStore
from tests.runtime.support.toy import toy_spec
from tests.runtime.support.traffic import add, drain, make_core

PARAMS = SamplingParams(temperature=0, max_tokens=4)


def test_the_queues_of_the_last_schedule_are_counted() -> None:
    core, _ = make_core(toy_spec())
    hit, lost = add(core, [1] * 9, PARAMS), add(core, [2] * 7, PARAMS)
    lost.draft([3, 4])
    scheduler, metrics = core.scheduler, EngineMetrics()
    scheduler.admitted, scheduler.preempted = [hit, lost], [lost]
    scheduler.reused = [(hit, 8), (lost, 0), (hit, 4)]
    count_queues(metrics, scheduler)
    assert (metrics.prefix_lookup_tokens, metrics.prefix_hit_tokens) == (16, 12)
    assert (hit.metrics.cached_tokens, lost.metrics.cached_tokens) == (12, 0)
    assert (metrics.preemptions, hit.metrics.preemptions, lost.metrics.preemptions) == (1, 0, 1)
    assert lost.num_drafted == 0, "drafts go with the blocks"
    count_queues(metrics, scheduler)
    assert metrics.preemptions == lost.metrics.preemptions == 2


def test_drafts_count_for_the_request_and_the_engine() -> None:
    core, _ = make_core(toy_spec())
    request, metrics = add(core, [1], PARAMS), EngineMetrics()
    for _ in range(2):
        count_drafts(metrics, request, DraftOutcome(5, (0, 1, 2), []))
    for counted in (metrics, request.metrics):
        assert (counted.drafted_tokens, counted.accepted_tokens) == (10, 6)


def test_a_snapshot_has_the_queues_and_blocks_of_now_and_stays_as_it_is() -> None:
    core, _ = make_core(toy_spec(), spare=0)
    metrics = EngineMetrics(total_blocks=(16,))
    add(core, [1] * 9, PARAMS)
    for _ in range(2):
        add(core, [2] * 60, PARAMS)
    core.step()
    taken = snapshot(metrics, core.scheduler, None)
    assert (taken.running, taken.waiting) == (1, 2)
    assert taken.free_blocks == core.scheduler.blocks.available() == (13,)
    assert (taken.cached_blocks, taken.spilled_blocks, taken.restored_blocks) == ((0,), 0, 0)
    drain(core)
    metrics.steps += 1
    metrics.work.add_step([(1, 1)], 1)
    assert (taken.running, taken.steps, taken.work.rows) == (1, 0, 0)
    ended = snapshot(metrics, core.scheduler, None)
    assert (ended.running, ended.waiting, ended.free_blocks) == (0, 0, (16,))
    assert ended.cached_blocks[0] > 0


def test_a_snapshot_counts_spilled_blocks() -> None:
    core, executable = make_core(toy_spec())
    spill = Spill(HostStore(1 << 20), executable)
    spill.save(0, b"a", 1)
    spill.save(0, b"b", 2)
    spill.load(0, b"a", 3)
    taken = snapshot(EngineMetrics(), core.scheduler, spill)
    assert (taken.spilled_blocks, taken.restored_blocks) == (2, 1)
