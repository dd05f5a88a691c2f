from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from optc.errors import InputError
from optc.runtime.executable.executable import KVGroup, LayerKV, StepInterface
from optc.runtime.kv.kv_blocks import blocks_needed
from optc.runtime.kv.kv_plan import available_memory, plan_kv, plan_with_draft, sequence_bytes
from tests.runtime.support.toy import toy_spec


def test_the_default_holds_all_sequences_at_full_length() -> None:
    spec = toy_spec((0, 8), max_context=64, max_sequences=8)
    plan = plan_kv(spec, None, 16)
    assert plan.block_size == 32
    assert plan.max_context == 64
    assert plan.blocks == (8 * 2, 8 * 2)
    assert plan.bytes == sum(plan.blocks) * 32 * 64


def test_too_little_memory_says_how_much_is_needed() -> None:
    with pytest.raises(InputError) as caught:
        plan_kv(toy_spec((0, 8)), 100, 16, 4)
    assert str(caught.value) == (
        "kv_memory: 100 bytes hold no KV block of 4 tokens "
        "(at least 512 bytes; 5888 for a context of 64 tokens)"
    )


def test_the_block_size_must_suit_the_engine() -> None:
    for size in (3, 0, -2):
        with pytest.raises(InputError) as caught:
            plan_kv(toy_spec(block_multiple=2), None, 16, size)
        assert str(caught.value) == (
            f"block_size: a KV block size of {size} tokens does not suit the engine "
            "(a multiple of 2)"
        )


@given(
    budget=st.integers(512, 100_000),
    windows=st.sampled_from([(0,), (0, 8), (4, 20)]),
    rows=st.integers(1, 16),
    size=st.sampled_from([2, 4, 8]),
)
def test_the_budget_is_kept_and_a_longest_request_fits(
    budget: int, windows: tuple[int, ...], rows: int, size: int
) -> None:
    spec = toy_spec(windows)
    try:
        plan = plan_kv(spec, budget, rows, size)
    except InputError:
        assert budget < size * spec.kv_bytes_per_token
        return
    assert plan.bytes <= budget
    assert plan.bytes == sum(n * size * 64 for n in plan.blocks)
    for blocks, window in zip(plan.blocks, windows, strict=True):
        assert blocks >= blocks_needed(plan.max_context, rows, window, size)
    if plan.max_context < spec.max_context:
        longer = [blocks_needed(plan.max_context + size, rows, w, size) for w in windows]
        assert sum(longer) * size * 64 > budget


@pytest.mark.parametrize("requests", [1, 3, 8])
@pytest.mark.parametrize("context", [2048, 1 << 17])
def test_windowed_groups_hold_the_requests_that_are_served_at_once(
    requests: int, context: int
) -> None:
    """Of 1024 tokens, 3 blocks a window and one for the prefix cache, and once the rows of a step;
    also where the budget holds no longest request."""
    spec = toy_spec((0, 8), max_context=context, max_sequences=8)
    block = 4 * 64
    room = requests * 4 + 4
    budget = max(requests * 256 + room, 2048 // 4 + room if context == 2048 else 0) * block
    plan = plan_kv(spec, budget, 16, 4)
    assert plan.blocks[1] == room
    assert plan.blocks[0] == budget // block - room
    assert plan.max_context == min(context, plan.blocks[0] * 4)


def test_what_nothing_else_can_use_is_for_cached_windows() -> None:
    spec = toy_spec((0, 8), max_context=64, max_sequences=8)
    whole, less = plan_kv(spec, None, 16, 4), plan_kv(spec, 8 * 20 * 4 * 64, 16, 4)
    assert whole.blocks == (8 * 16, 8 * blocks_needed(64, 16, 8, 4))
    assert less.blocks == (8 * 16, 8 * 4)


@given(budget=st.integers(2048, 2_000_000), more=st.integers(0, 1_000_000))
def test_more_memory_never_holds_less(budget: int, more: int) -> None:
    spec = toy_spec((0, 8), max_context=4096, max_sequences=6)
    less, much = plan_kv(spec, budget, 16, 4), plan_kv(spec, budget + more, 16, 4)
    assert budget - less.bytes < 3 * 4 * 64 or less == much
    assert less.blocks[1] <= much.blocks[1]
    assert much.bytes <= budget + more


def test_available_memory_is_positive() -> None:
    assert available_memory() > 0


@pytest.mark.parametrize("budget", [None, 1 << 14, 1 << 16, 1 << 30])
def test_a_target_and_its_draft_share_one_budget(budget: int | None) -> None:
    target, draft = toy_spec((0, 0, 0)), toy_spec((0,))
    plan, draft_plan = plan_with_draft(target, draft, budget, 16, 4)
    tokens = [plan.blocks[0] * 4, draft_plan.blocks[0] * 4]
    assert abs(tokens[0] - tokens[1]) <= 4
    assert plan.max_context == draft_plan.max_context == 64
    assert budget is None or plan.bytes + draft_plan.bytes <= budget
    if budget in (None, 1 << 30):
        assert plan == plan_kv(target, None, 16, 4)


def slots(**options: int) -> StepInterface:
    return replace(toy_spec(max_context=64, max_sequences=4, **options), kv_layout="slots")


def test_slots_hold_a_sequence_each() -> None:
    spec = slots(block_multiple=1)
    token = spec.kv_bytes_per_token
    plan = plan_kv(spec, None, 16)
    assert (plan.block_size, plan.blocks, plan.max_context) == (64, (4,), 64)
    assert plan.bytes == 4 * 64 * token
    # fewer slots where memory is short, then a shorter one
    assert plan_kv(spec, 2 * 64 * token + 5, 16).blocks == (2,)
    short = plan_kv(spec, 40 * token, 16)
    assert (short.block_size, short.blocks, short.max_context) == (40, (1,), 40)
    # shorter slots are more
    chosen = plan_kv(spec, 64 * token, 16, 16)
    assert (chosen.block_size, chosen.blocks, chosen.max_context) == (16, (4,), 16)


def test_slots_that_do_not_fit_are_refused() -> None:
    spec = slots(block_multiple=1)
    token = spec.kv_bytes_per_token
    with pytest.raises(InputError) as caught:
        plan_kv(spec, None, 16, 65)
    assert str(caught.value) == (
        "block_size: a slot of 65 tokens is longer than the engine's context (at most 64)"
    )
    with pytest.raises(InputError) as caught:
        plan_kv(spec, 7 * token, 16, 8)
    assert str(caught.value) == (
        f"kv_memory: {7 * token} bytes hold no slot of 8 tokens "
        f"(at least {8 * token} bytes, or a smaller block_size)"
    )


def test_the_default_takes_a_quarter_of_the_memory_and_holds_a_longest_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = toy_spec((0,), max_context=64, max_sequences=64)
    whole = plan_kv(spec, None, 16)
    one = whole.bytes // 64
    monkeypatch.setattr("optc.runtime.kv.kv_plan.available_memory", lambda: 40 * one)
    assert plan_kv(spec, None, 16).bytes == 10 * one
    monkeypatch.setattr("optc.runtime.kv.kv_plan.available_memory", lambda: one)
    assert plan_kv(spec, None, 16).bytes == one


@pytest.mark.parametrize("rows", [0, -1])
def test_a_step_has_rows(rows: int) -> None:
    with pytest.raises(InputError, match=f"{rows} rows a step") as caught:
        plan_kv(toy_spec(), None, rows)
    assert caught.value.where == "token_budget"
    plan_kv(toy_spec(), None, 1)


def test_a_sequence_holds_whole_blocks_of_windows_and_states() -> None:
    """18 layers of 16 heads of 128 by 128: 18 MiB in each block of 128 tokens, of which a sequence
    holds two while it goes from one into the next; as many of the convolutions before them."""
    state = LayerKV(1, 16, 64, 64, "float32")
    rows = LayerKV(2, 1, 3072, 3072, "float32")
    plain = LayerKV(0, 2, 128, 128, "int8")
    layers = (*[plain] * 6, *[state] * 18, *[rows] * 18)
    groups = (
        KVGroup(0, tuple(range(6))),
        KVGroup(2, tuple(range(6, 24)), state_slots=128),
        KVGroup(4, tuple(range(24, 42))),
    )
    mib, token = 1 << 20, 6 * plain.bytes_per_token
    fixed = 2 * (18 * mib + 54 * mib)
    assert sequence_bytes(groups, layers, 128) == fixed // 2 + 128 * token
    assert sequence_bytes(groups, layers, 32_768) == fixed + 32_768 * token


def test_a_sequence_without_states_holds_blocks_of_the_usual_size() -> None:
    spec = toy_spec((0, 8), max_context=64)
    assert sequence_bytes(spec.groups, spec.layers, 64) == (2 + 2) * 32 * 64
    assert sequence_bytes(spec.groups, spec.layers, 1) == (1 + 1) * 32 * 64
