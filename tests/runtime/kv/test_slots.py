"""Slots are paged KV of one block a sequence: no request ever needs a second one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from optc.runtime.executable.kv_layout import block_size_for
from optc.runtime.kv.kv_plan import plan_kv
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.planning.controller import Fixed
from optc.runtime.speculative.proposer import DraftRequest, Drafts
from optc.runtime.speculative.speculator import DraftSource, Speculator
from tests.runtime.support.toy import VOCAB, ToyExecutable, generate_naively, toy_spec

CONTEXT = 24


class Zeros:
    """Drafts as many zeros as are asked for, however near the end of the slot."""

    def propose(self, wanted: Sequence[DraftRequest]) -> list[Drafts]:
        return [Drafts([0] * count) for _, count in wanted]

    def forget(self, request: Request) -> None:
        """Nothing is kept."""


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, CONTEXT - 1), min_size=1, max_size=6),
    slots=st.integers(1, 4),
    budget=st.integers(2, 16),
    copies=st.integers(1, 3),
)
def test_every_sequence_has_one_block_to_its_end(
    lengths: list[int], slots: int, budget: int, copies: int
) -> None:
    spec = structs.replace(
        toy_spec(max_context=CONTEXT, block_multiple=1, max_logit_rows=16),
        kv_layout="slots",
        batch_invariant=False,
    )
    executable = ToyExecutable(spec)
    plan = plan_kv(spec, slots * CONTEXT * spec.kv_bytes_per_token, budget)
    assert plan.blocks == (slots,)
    core = Core(
        executable,
        plan,
        ServeSettings(token_budget=budget),
        speculator=Speculator([DraftSource(Zeros(), Fixed(5))]),
    )
    params = SamplingParams(max_tokens=None, temperature=0, ignore_eos=True)
    rng = np.random.default_rng(0)
    requests = []
    for length in lengths:
        prompt = rng.integers(0, VOCAB, length).astype(np.int32)
        leader = core.add(CompletionInput(prompt, params, seed=1))
        requests.append(leader)
        requests += [
            core.add(CompletionInput(prompt, params, seed=1, index=index), leader)
            for index in range(1, copies)
        ]
    while core.has_work:
        core.step()
        core.scheduler.check_integrity()
    assert all(batch.block_tables.shape[2] == 1 for batch in executable.batches)
    for request in requests:
        prompt = request.tokens[: request.num_prompt].tolist()
        want = generate_naively(executable.model, prompt, CONTEXT - len(prompt))
        assert request.output.tolist() == want


def test_a_block_holds_what_the_layout_asks_for() -> None:
    paged = toy_spec(block_multiple=16)
    assert block_size_for(paged, 1000, about=64) == 64
    assert block_size_for(paged, 1000, about=8) == 16
    assert block_size_for(structs.replace(paged, kv_layout="slots"), 1000, about=64) == 1000
