"""Random requests that come and go over a toy core; after every step the blocks are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from optc.runtime.executable.executable import StepInterface
from optc.runtime.kv.kv_blocks import blocks_needed
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.planning.controller import Fixed
from optc.runtime.speculative.proposer import Proposer
from optc.runtime.speculative.speculator import DraftSource, Speculator
from tests.runtime.support.toy import VOCAB, ToyExecutable

SEED = 7
BLOCK_SIZE = 4
#: Steps in which everything that a test does must have ended.
MOST_STEPS = 2000
#: Arrivals end before this step.
LAST_ARRIVAL = 8


def traffic_settings(max_examples: int = 60) -> settings:
    """Of property tests over traffic."""
    slow = [HealthCheck.too_slow]
    return settings(
        max_examples=max_examples, deadline=None, suppress_health_check=slow, derandomize=True
    )


class Arrival(NamedTuple):
    """A request, and the step before which it comes."""

    prompt: list[int]
    params: SamplingParams
    step: int


def prompts(most: int = 20, vocab: int = VOCAB) -> st.SearchStrategy[list[int]]:
    """Token ids, at least one."""
    return st.lists(st.integers(0, vocab - 1), min_size=1, max_size=most)


@st.composite
def arrivals(
    draw: st.DrawFn,
    prompt: st.SearchStrategy[list[int]] | None = None,
    *,
    most: int = 5,
    tokens: int = 16,
    temperatures: Sequence[float] = (0.0, 0.7),
    options: Sequence[dict[str, Any]] = ({},),
) -> list[Arrival]:
    """Requests in order of arrival, at most ``most``, each with one of the ``options`` of
    `SamplingParams`."""
    texts = prompts() if prompt is None else prompt
    found = []
    for _ in range(draw(st.integers(1, most))):
        params = SamplingParams(
            temperature=draw(st.sampled_from(temperatures)),
            max_tokens=draw(st.integers(1, tokens)),
            **draw(st.sampled_from(options)),
        )
        found.append(Arrival(draw(texts), params, draw(st.integers(0, LAST_ARRIVAL))))
    return sorted(found, key=lambda arrival: arrival.step)


def tiny_plan(spec: StepInterface, budget: int, spare: int) -> KVPlan:
    """Pools for one request of full length and ``spare`` blocks."""
    blocks = tuple(
        blocks_needed(spec.max_context, budget, group.window, BLOCK_SIZE) + spare
        for group in spec.groups
    )
    return KVPlan(BLOCK_SIZE, blocks, 0, spec.max_context)


def make_core(
    spec: StepInterface,
    proposer: Proposer | None = None,
    *,
    drafts: int = 4,
    budget: int = 16,
    spare: int = 40,
    prefix_cache: bool = True,
    eos_token_ids: Iterable[int] = (),
) -> tuple[Core, ToyExecutable]:
    """A core over the toy model that always drafts so many tokens, if there is a proposer."""
    executable = ToyExecutable(spec)
    core = Core(
        executable,
        tiny_plan(spec, budget, spare),
        ServeSettings(token_budget=budget, prefix_cache=prefix_cache),
        eos_token_ids=eos_token_ids,
        speculator=Speculator([DraftSource(proposer, Fixed(drafts))]) if proposer else None,
    )
    return core, executable


def add(core: Core, prompt: list[int], params: SamplingParams) -> Request:
    """Queue a request with the seed of all."""
    return core.add(CompletionInput(np.array(prompt, np.int32), params, seed=SEED))


def drain(core: Core, *checks: Callable[[], None]) -> None:
    """Run a core to its end; ``checks`` beside its own after every step."""
    for _ in range(MOST_STEPS):
        if not core.has_work:
            return
        core.step()
        for check in (core.scheduler.check_integrity, *checks):
            check()
    raise AssertionError("not done")


def serve(
    core: Core,
    arriving: Sequence[Arrival],
    *checks: Callable[[], None],
    add: Callable[[Core, list[int], SamplingParams], Request] = add,
    before: Callable[[int, list[Request]], None] = lambda step, requests: None,
) -> list[Request]:
    """Serve requests to their end; returns them in order.

    Args:
        core: Has no work yet.
        arriving: In order of arrival.
        checks: As of `drain`.
        add: Queues one.
        before: Called before each step with its number and the requests so far.
    """
    live: list[Request] = []
    for step in range(MOST_STEPS):
        live += [add(core, each.prompt, each.params) for each in arriving if each.step == step]
        before(step, live)
        if core.has_work:
            core.step()
        for check in (core.scheduler.check_integrity, *checks):
            check()
        if step > LAST_ARRIVAL and not core.has_work:
            return live
    raise AssertionError("not done")


def serve_with_cancels(
    core: Core,
    arriving: Sequence[Arrival],
    cancelled: Sequence[tuple[int, int]],
    *checks: Callable[[], None],
) -> None:
    """Serve requests to their end, some of which are cancelled, and check that each says what it
    says alone.

    Args:
        core: As of `serve`.
        arriving: As of `serve`.
        cancelled: A request's index, and the step before which it is cancelled.
        checks: As of `drain`.
    """

    def cancel(step: int, live: list[Request]) -> None:
        for index, when in cancelled:
            if when == step and index < len(live):
                core.cancel(live[index])

    live = serve(core, arriving, *checks, before=cancel)
    for request, each in zip(live, arriving, strict=True):
        whole = alone(core.executable.spec, each.prompt, each.params).output.tolist()
        if request.finish_reason == "cancelled":
            whole = whole[: request.num_output]
        assert request.output.tolist() == whole


def alone(spec: StepInterface, prompt: list[int], params: SamplingParams) -> Request:
    """A request by plain decoding, with the engine to itself."""
    core, _ = make_core(spec)
    request = add(core, prompt, params)
    drain(core)
    return request
