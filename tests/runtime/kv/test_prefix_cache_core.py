"""The prefix cache under requests: what is computed once, and for whom."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from optc.runtime.adapters.table import Adapter
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import StepInterface
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.settings import ServeSettings
from tests.runtime.support.toy import ToyExecutable, generate_naively, toy_spec
from tests.runtime.support.traffic import drain

GREEDY = SamplingParams(temperature=0, max_tokens=5)


def make_core(spec: StepInterface, blocks: int = 40) -> tuple[Core, ToyExecutable]:
    executable = ToyExecutable(spec)
    plan = KVPlan(4, (blocks,) * len(spec.groups), 0, spec.max_context)
    return Core(executable, plan, ServeSettings(token_budget=16)), executable


def run(core: Core, prompt: list[int], salt: str = "") -> Request:
    request = core.add(CompletionInput(np.array(prompt, np.int32), GREEDY, seed=0, salt=salt))
    drain(core)
    return request


@pytest.mark.parametrize("windows", [(0,), (0, 6)])
def test_a_shared_prefix_is_computed_once(windows: tuple[int, ...]) -> None:
    core, executable = make_core(toy_spec(windows))
    shared = [int(t) for t in np.random.default_rng(0).integers(0, 48, 40)]
    for tail in range(4):
        prompt = [*shared, tail, tail]
        request = run(core, prompt)
        assert request.output.tolist() == generate_naively(executable.model, prompt, 5)
        assert request.metrics.cached_tokens == (40 if tail else 0)
    metrics = core.metrics()
    assert metrics.prompt_tokens == 42 + 3 * 2
    assert metrics.prefix_lookup_tokens == 4 * 42
    assert metrics.prefix_hit_tokens == 3 * 40
    assert metrics.prefix_hit_rate == pytest.approx(120 / 168)
    assert metrics.free_blocks == metrics.total_blocks
    assert 0 < metrics.cached_blocks[0] < metrics.total_blocks[0]
    assert run(core, [*shared, 9], salt="tenant").metrics.cached_tokens == 0


@pytest.mark.parametrize("windows", [(0,), (0, 6)])
def test_a_burst_with_a_shared_prefix_computes_it_once(windows: tuple[int, ...]) -> None:
    """The second request gets the first one's leftover rows, and later what that computed."""
    core, executable = make_core(toy_spec(windows), blocks=150)
    shared = [int(t) for t in np.random.default_rng(3).integers(0, 48, 26)]
    prompts = [[*shared, tail] for tail in range(6)]
    requests = [core.add(CompletionInput(np.array(p, np.int32), GREEDY, seed=0)) for p in prompts]
    while core.has_work:
        core.step()
        core.scheduler.check_integrity()
    for prompt, request in zip(prompts, requests, strict=True):
        assert request.output.tolist() == generate_naively(executable.model, prompt, 5)
    metrics = core.metrics()
    # 16 + 11 rows of the first, 5 of the second in the second's first step; then 24 are cached.
    assert metrics.prompt_tokens == 27 + 5 + 5 * 3
    assert metrics.prefix_hit_tokens == sum(r.metrics.cached_tokens for r in requests)


def test_a_conversation_goes_on_from_its_last_turn() -> None:
    core, executable = make_core(toy_spec((0, 6)))
    text = [1, 2, 3, 4, 5, 6]
    for turn in range(5):
        request = run(core, text)
        assert request.output.tolist() == generate_naively(executable.model, text, 5)
        if turn:  # all but the last token of the last turn was computed
            assert request.metrics.cached_tokens == (len(text) - 2 - 1) // 4 * 4
        text += [*request.output.tolist(), turn, turn]


def test_engines_that_are_not_batch_invariant_have_no_cache() -> None:
    core, _ = make_core(replace(toy_spec(), batch_invariant=False))
    for _ in range(2):
        assert run(core, [1] * 30).metrics.cached_tokens == 0


def test_no_salt_is_read_as_an_adapter() -> None:
    core, _ = make_core(toy_spec())
    adapter = Adapter("sql", slot=0, generation=1)
    tokens = np.arange(20, dtype=np.int32) % 7
    keys = [
        core.add(CompletionInput(tokens, GREEDY, seed=0, salt=salt, adapter=one)).salt
        for one in (None, adapter)
        for salt in ("", "1", "\0", "\x001", "1\0", "a\x001", "a")
    ]
    assert len(set(keys)) == len(keys)


def test_the_engine_keeps_tenants_apart() -> None:
    executable = ToyExecutable(toy_spec())
    with Engine(lambda: executable, ServeSettings(block_size=4)) as engine:
        for salt, cached in [("a", 0), ("a", 20), ("b", 0)]:
            output = engine.generate([[3] * 21], GREEDY, salt=salt)[0]
            assert output.metrics.cached_tokens == cached
        assert engine.submit([3] * 21, GREEDY, salt="b").result().metrics.cached_tokens == 20
    with Engine(lambda: executable, ServeSettings(block_size=4, prefix_cache=False)) as engine:
        engine.generate([[3] * 21] * 2, GREEDY)
        assert engine.generate([[3] * 21], GREEDY)[0].metrics.cached_tokens == 0
