"""n completions of one prompt: one prefill, the last partial block copied."""

from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Int32, StepInterface
from optc.runtime.kv.kv_blocks import KVBlocks, blocks_needed
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.settings import ServeSettings
from tests.runtime.support.toy import ToyExecutable, toy_spec

PARAMS = SamplingParams(temperature=1.1, max_tokens=12)


def make_core(
    spec: StepInterface, *, budget: int = 16, spare: int = 40, prefix_cache: bool = False
) -> tuple[Core, ToyExecutable]:
    executable = ToyExecutable(spec)
    blocks = tuple(
        blocks_needed(spec.max_context, budget, group.window, 4) + spare for group in spec.groups
    )
    plan = KVPlan(4, blocks, 0, spec.max_context)
    return Core(
        executable, plan, ServeSettings(token_budget=budget, prefix_cache=prefix_cache)
    ), executable


def add_all(core: Core, prompt: list[int], count: int) -> list[Request]:
    leader = core.add(CompletionInput(np.array(prompt, np.int32), PARAMS, seed=5))
    return [leader] + [
        core.add(CompletionInput(np.array(prompt, np.int32), PARAMS, seed=5, index=index), leader)
        for index in range(1, count)
    ]


def drain(core: Core) -> None:
    while core.has_work:
        core.step()
        core.scheduler.check_integrity()


def alone(spec: StepInterface, prompt: list[int], count: int) -> list[list[int]]:
    """What each completion gives when it is the only request there is."""
    outputs = []
    for index in range(count):
        core, _ = make_core(spec)
        request = core.add(CompletionInput(np.array(prompt, np.int32), PARAMS, seed=5, index=index))
        drain(core)
        outputs.append(request.output.tolist())
    return outputs


@pytest.mark.parametrize("windows", [(0,), (0, 5), (3, 9)])
@pytest.mark.parametrize("length", [1, 8, 21])
def test_one_prefill_serves_all(windows: tuple[int, ...], length: int) -> None:
    spec = toy_spec(windows)
    prompt = [int(t) for t in np.random.default_rng(1).integers(0, 48, length)]
    core, _ = make_core(spec)
    requests = add_all(core, prompt, 4)
    drain(core)
    assert [request.output.tolist() for request in requests] == alone(spec, prompt, 4)
    assert len({tuple(request.output.tolist()) for request in requests}) > 1
    metrics = core.metrics()
    assert (metrics.prompt_tokens, metrics.forked) == (length, 3)
    assert all(request.metrics.scheduled_s is not None for request in requests)
    assert metrics.free_blocks == metrics.total_blocks


class CountingToy(ToyExecutable):
    copied: int = 0

    def copy_kv(self, group: int, src_slots: Int32, dst_slots: Int32) -> None:
        assert src_slots.dtype == dst_slots.dtype == np.int32
        self.copied += len(src_slots)
        super().copy_kv(group, src_slots, dst_slots)


def test_only_the_partial_block_is_copied() -> None:
    executable = CountingToy(toy_spec((0, 5)))
    plan = KVPlan(4, (30, 30), 0, 64)
    core = Core(executable, plan, ServeSettings(token_budget=16))
    add_all(core, [1] * 10, 3)
    core.step()
    # 10 = 2 * 4 + 2, for two requests in two groups
    assert executable.copied == 2 * 2 * 2
    assert core.metrics().free_blocks[0] == 30 - 3 - 2


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize(("budget", "spare"), [(2, 0), (6, 1), (16, 3)])
def test_tiny_pools_change_nothing(budget: int, spare: int, prefix_cache: bool) -> None:
    spec = toy_spec((0, 6))
    prompts = [[4, 5, 6, 7, 8, 9], [1] * 9]
    core, _ = make_core(spec, budget=budget, spare=spare, prefix_cache=prefix_cache)
    groups = [add_all(core, prompt, 5) for prompt in prompts]
    drain(core)
    for prompt, requests in zip(prompts, groups, strict=True):
        assert [request.output.tolist() for request in requests] == alone(spec, prompt, 5)


def test_the_others_go_on_without_a_cancelled_leader() -> None:
    spec = toy_spec()
    core, _ = make_core(spec, budget=4)
    prompt = [3] * 15
    requests = add_all(core, prompt, 3)
    core.step()
    core.cancel(requests[0])
    drain(core)
    assert [r.output.tolist() for r in requests[1:]] == alone(spec, prompt, 3)[1:]


def test_a_fork_without_room_takes_nothing() -> None:
    blocks = KVBlocks((0,), (2,), 4)
    source, target = blocks.new_tables(), blocks.new_tables()
    assert blocks.grow(source, 6)
    assert blocks.fork(source, target, 6) is None
    assert not target.blocks[0]
    assert blocks.fork(source, target, 4) == []
    blocks.free(source)
    assert blocks.pools[0].num_free == 1


def test_the_engine_forks() -> None:
    executable = ToyExecutable(toy_spec())
    with Engine(lambda: executable) as engine:
        params = SamplingParams(n=3, seed=5, temperature=1.1, max_tokens=12)
        output = engine.generate([[7] * 9], params)[0]
        assert engine.metrics().forked == 2
        assert engine.metrics().prompt_tokens == 9
    assert [list(c.token_ids) for c in output.completions] == alone(executable.spec, [7] * 9, 3)
