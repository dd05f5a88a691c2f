"""How many KV blocks each group gets from a memory budget, and the longest request they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from optc.errors import InputError
from optc.executable.executable import EngineSpec
from optc.runtime.kv.kv_blocks import blocks_needed

#: KV blocks hold about this many tokens unless the engine's multiple is larger: small enough to
#: waste little on short requests, large enough to keep tables short.
_BLOCK_TOKENS = 32
_DEFAULT_BYTES = 2 << 30


@dataclass(frozen=True)
class KVPlan:
    """Sizes of the KV pools.

    Attributes:
        block_size: Tokens a block.
        blocks: Blocks of each KV group.
        bytes: Memory of all pools.
        max_context: Longest request, prompt and output, that the pools hold; at most the
            engine's own limit.
    """

    block_size: int
    blocks: tuple[int, ...]
    bytes: int
    max_context: int


def plan_kv(
    spec: EngineSpec, budget_bytes: int | None, token_budget: int, block_size: int | None = None
) -> KVPlan:
    """Divide a budget over the groups as a longest request would use them.

    Args:
        spec: The engine.
        budget_bytes: Memory for KV; None is enough for all sequences at full length, but at
            most 2 GiB and a quarter of the available memory.
        token_budget: Most rows of one step: what a windowed group holds besides its window.
        block_size: Tokens a block; None is about 32. Of an engine with slots, tokens a slot, the
            longest request; None is the engine's context, or what the budget holds once.

    Raises:
        InputError: ``block_size`` does not suit the engine, ``token_budget`` is below 1, or the
            budget is below one block for every group; says how much is needed.
    """
    if token_budget < 1:
        raise InputError(f"{token_budget} rows a step", where="token_budget", hint="at least 1")
    if spec.kv_layout == "slots":
        return _plan_slots(spec, budget_bytes, block_size)
    size = _block_size(spec, block_size)
    block_bytes = [
        size * sum(spec.layers[layer].bytes_per_token for layer in group.layers)
        for group in spec.groups
    ]

    def blocks_for(context: int) -> list[int]:
        return [blocks_needed(context, token_budget, g.window, size) for g in spec.groups]

    def bytes_for(blocks: list[int]) -> int:
        return sum(n * b for n, b in zip(blocks, block_bytes, strict=True))

    full = blocks_for(spec.max_context)
    most = spec.max_sequences * bytes_for(full)
    if budget_bytes is None:
        budget_bytes = min(most, _DEFAULT_BYTES, max(bytes_for(full), available_memory() // 4))
    budget = min(budget_bytes, most)
    if budget >= bytes_for(full):
        share = budget / bytes_for(full)
        blocks = [int(n * share) for n in full]
        return KVPlan(size, tuple(blocks), bytes_for(blocks), spec.max_context)
    context = _longest(spec.max_context, size, lambda length: bytes_for(blocks_for(length)), budget)
    blocks = blocks_for(context)
    return KVPlan(size, tuple(blocks), bytes_for(blocks), context)


def _plan_slots(spec: EngineSpec, budget_bytes: int | None, slot_tokens: int | None) -> KVPlan:
    """A slot for each of as many sequences as the budget holds; where it holds not even one of
    full length, one shorter slot."""
    size = spec.max_context if slot_tokens is None else _block_size(spec, slot_tokens)
    if size > spec.max_context:
        raise InputError(
            f"a slot of {size} tokens is longer than the engine's context",
            where="block_size",
            hint=f"at most {spec.max_context}",
        )
    token = spec.kv_bytes_per_token
    if budget_bytes is None:
        budget_bytes = min(_DEFAULT_BYTES, max(size * token, available_memory() // 4))
    if slot_tokens is None and budget_bytes < size * token:
        size = budget_bytes // token
    if size < 1 or budget_bytes < size * token:
        raise InputError(
            f"{budget_bytes} bytes hold no slot of {max(size, 1)} tokens",
            where="kv_memory",
            hint=f"at least {max(size, 1) * token} bytes, or a smaller block_size",
        )
    count = min(spec.max_sequences, budget_bytes // (size * token))
    return KVPlan(size, (count,), count * size * token, size)


def plan_with_draft(
    spec: EngineSpec,
    draft: EngineSpec,
    budget_bytes: int | None,
    token_budget: int,
    block_size: int | None = None,
) -> tuple[KVPlan, KVPlan]:
    """Divide one budget over a target and its draft, so that both hold about as many tokens.

    Args:
        spec: The target.
        draft: The draft.
        budget_bytes: Memory for the KV of both; None is what `plan_kv` chooses for the target,
            and that of the draft besides.
        token_budget: Most rows of one step of either.
        block_size: Tokens a block of either; None is about 32.

    Raises:
        InputError: As of `plan_kv`, for one of the two.
    """
    whole = spec.kv_bytes_per_token + draft.kv_bytes_per_token
    if budget_bytes is None:
        plan = plan_kv(spec, None, token_budget, block_size)
        budget_bytes = plan.bytes * whole // spec.kv_bytes_per_token
    else:
        share = budget_bytes * spec.kv_bytes_per_token // whole
        plan = plan_kv(spec, share, token_budget, block_size)
    return plan, plan_kv(draft, budget_bytes - plan.bytes, token_budget, block_size)


def _longest(limit: int, size: int, cost: Callable[[int], int], budget: int) -> int:
    """The longest multiple of ``size`` tokens, at most ``limit``, that costs at most ``budget``."""
    low, high = 0, limit // size
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cost(middle * size) <= budget else (low, middle - 1)
    if not low:
        raise InputError(
            f"{budget} bytes hold no KV block of {size} tokens",
            where="kv_memory",
            hint=f"at least {cost(size)} bytes; {cost(limit)} for a context of {limit} tokens",
        )
    return low * size


def _block_size(spec: EngineSpec, wanted: int | None) -> int:
    multiple = spec.block_multiple
    if wanted is None:
        return multiple * max(1, _BLOCK_TOKENS // multiple)
    if wanted < 1 or wanted % multiple:
        raise InputError(
            f"a KV block size of {wanted} tokens does not suit the engine",
            where="block_size",
            hint=f"a multiple of {multiple}",
        )
    return wanted


def available_memory() -> int:
    """Bytes that new processes could use now, as the kernel and the cgroup state them."""
    info = dict(
        line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line
    )
    available = int(info["MemAvailable"].split()[0]) * 1024
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.exists() and used.exists() and (text := limit.read_text().strip()) != "max":
        available = min(available, max(0, int(text) - int(used.read_text())))
    return available
