"""From opened engines to a core, and back where something fails."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from optc.errors import InputError
from optc.runtime.loop.core_factory import CoreFactory, check_same_vocabulary
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.drafting import Drafting
from tests.runtime.support.toy import ToyExecutable, toy_spec

SPEC = toy_spec(max_rows=16, max_sequences=8)


def opened(drafting: Drafting | None = None, **settings: Any) -> tuple[CoreFactory, ToyExecutable]:
    executable = ToyExecutable(SPEC)
    opening = CoreFactory(lambda: executable, ServeSettings(**settings), drafting or Drafting())
    return opening, executable


def test_options_reach_the_core() -> None:
    opening, executable = opened(
        token_budget=10,
        max_sequences=3,
        block_size=4,
        kv_memory=20 * 4 * SPEC.kv_bytes_per_token,
    )
    core = opening()
    assert opening.spec is SPEC
    assert (opening.plan.block_size, opening.plan.blocks) == (4, (20,))
    assert (executable.block_size, executable.blocks) == (4, (20,))
    assert core.scheduler.token_budget == 10
    assert core.scheduler.max_running == 3
    assert opening.adapters is core.adapters


def test_the_engines_limits_hold_for_what_is_larger_or_not_said() -> None:
    for options in ({}, {"token_budget": 99, "max_sequences": 99}):
        core = opened(**options)[0]()
        assert (core.scheduler.token_budget, core.scheduler.max_running) == (16, 8)


def test_weights_that_stay_leave_room_for_keys_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optc.runtime.loop.core_factory.available_memory", lambda: 2 << 20)
    opening, executable = opened(resident_memory=2 << 20)
    with pytest.raises(InputError, match=r"2\.0 MiB of weights and .* of keys .* left, 2\.0 MiB"):
        opening()
    assert executable.closed
    opening, _ = opened(resident_memory=1 << 20)
    opening()
    assert 0 < opening.plan.bytes <= 1 << 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_memory": 1}, "1 bytes hold no KV block"),
        ({"prefix_spill": "nowhere"}, "prefix_spill: 'nowhere' is neither a size nor a folder"),
        ({"prefix_eviction": "fifo"}, "eviction 'fifo' is not known"),
    ],
)
def test_what_fails_closes_the_engine(options: dict[str, Any], message: str) -> None:
    opening, executable = opened(**options)
    with pytest.raises(InputError, match=message):
        opening()
    assert executable.closed


def test_a_draft_that_does_not_fit_closes_both() -> None:
    draft = ToyExecutable(replace(SPEC, vocab_size=SPEC.vocab_size + 1))
    opening, executable = opened(drafting=Drafting(("draft",), lambda: draft, count=2))
    with pytest.raises(InputError, match="the draft model knows 49 tokens, the target 48"):
        opening()
    assert (executable.closed, draft.closed) == (True, True)


def test_a_draft_that_cannot_be_opened_closes_the_target() -> None:
    def broken() -> ToyExecutable:
        raise InputError("no such draft")

    opening, executable = opened(drafting=Drafting(("draft",), broken, count=2))
    with pytest.raises(InputError, match="no such draft"):
        opening()
    assert executable.closed


def test_closing_the_core_closes_both() -> None:
    draft = ToyExecutable(SPEC)
    opening, executable = opened(drafting=Drafting(("draft",), lambda: draft, count=2))
    core = opening()
    assert (executable.closed, draft.closed) == (False, False)
    core.close()
    assert (executable.closed, draft.closed) == (True, True)


def test_a_draft_with_the_targets_pools_leaves_it_all_memory() -> None:
    memory = 20 * 4 * SPEC.kv_bytes_per_token
    options = {"block_size": 4, "kv_memory": memory}
    for shared_kv, blocks in (((), (10,)), ((0,), (20,))):
        draft = ToyExecutable(replace(SPEC, shared_kv=shared_kv))
        opening, executable = opened(Drafting(("draft",), lambda draft=draft: draft, 2), **options)
        opening()
        assert opening.plan.blocks == executable.blocks == blocks
        assert (draft.keys[0] is executable.keys[0]) == bool(shared_kv)


def test_vocabularies() -> None:
    check_same_vocabulary(SPEC, replace(SPEC, max_context=8))
    with pytest.raises(InputError, match="a draft must have the target's vocabulary"):
        check_same_vocabulary(SPEC, replace(SPEC, vocab_size=8))
