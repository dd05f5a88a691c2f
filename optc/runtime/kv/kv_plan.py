"""The KV blocks of each group within a memory budget, and the longest request that they hold."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from optc.errors import InputError
from optc.runtime.executable.executable import KVGroup, LayerKV, StepInterface
from optc.runtime.kv.kv_blocks import blocks_needed
from optc.system.available import available_memory

#: KV blocks hold about this many tokens unless the engine's multiple is larger: small enough to
#: waste little on short requests, large enough to keep tables short.
_BLOCK_TOKENS = 32
_DEFAULT_BYTES = 2 << 30
#: Tokens of a request for which windowed groups have room, where requests may be longer.
_USUAL_TOKENS = 1024


def sequence_bytes(groups: Sequence[KVGroup], layers: Sequence[LayerKV], context: int) -> int:
    """Memory of the blocks that a sequence holds at most while it decodes up to ``context`` tokens,
    in blocks of the usual size: windows and recurrent states hold whole blocks, too."""
    size = max(_BLOCK_TOKENS, *(group.state_slots for group in groups))
    return sum(
        blocks_needed(context, 1, group.window, size)
        * size
        * sum(layers[layer].bytes_per_token for layer in group.layers)
        for group in groups
    )


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
    spec: StepInterface, budget_bytes: int | None, token_budget: int, block_size: int | None = None
) -> KVPlan:
    """Divide a budget over the groups as the requests that are served at once use them.

    Args:
        spec: The engine.
        budget_bytes: Memory for KV; None is enough for all sequences at full length, but at
            most 2 GiB and a quarter of the available memory.
        token_budget: Most rows of one step: what windowed groups hold besides windows.
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
    shares = _Shares(spec, token_budget, size)
    longest = shares.bytes(shares.of_one(spec.max_context))
    most = shares.bytes(shares.most())
    if budget_bytes is None:
        budget_bytes = min(most, _DEFAULT_BYTES, max(longest, available_memory() // 4))
    budget = min(budget_bytes, most)
    if budget >= longest:
        blocks = shares.within(budget)
        return KVPlan(size, blocks, shares.bytes(blocks), spec.max_context)
    room = shares.room_within(budget)
    context = _longest(
        spec.max_context, size, lambda n: shares.bytes(shares.with_one(n, room)), budget
    )
    blocks = shares.with_one(context, room)
    return KVPlan(size, blocks, shares.bytes(blocks), context)


@dataclass(frozen=True)
class _Shares:
    """The numbers of blocks of each group that requests hold.

    Attributes:
        spec: The engine.
        rows: Most rows of one step, of all sequences together.
        size: Tokens a block.
    """

    spec: StepInterface
    rows: int
    size: int

    def block_bytes(self) -> list[int]:
        """Memory of a block of each group."""
        layers = self.spec.layers
        return [
            self.size * sum(layers[layer].bytes_per_token for layer in group.layers)
            for group in self.spec.groups
        ]

    def bytes(self, blocks: Sequence[int]) -> int:
        """Memory of so many blocks of each group."""
        return sum(count * one for count, one in zip(blocks, self.block_bytes(), strict=True))

    def of_one(self, context: int) -> tuple[int, ...]:
        """The blocks of one request of ``context`` tokens that has all rows of a step."""
        groups = self.spec.groups
        return tuple(blocks_needed(context, self.rows, g.window, self.size) for g in groups)

    def room(self, count: int, context: int) -> tuple[int, ...]:
        """The blocks of so many requests of ``context`` tokens: in a windowed group each has its
        window, and a block that the prefix cache keeps, and all together the rows of a step."""
        step = -(-self.rows // self.size)
        found = []
        for group in self.spec.groups:
            each = blocks_needed(context, 1, group.window, self.size)
            found.append(count * (each + 1) + step * bool(count) if group.window else count * each)
        return tuple(found)

    def room_within(self, budget: int) -> tuple[int, ...]:
        """The tokens of as many requests of usual length as ``budget`` bytes hold."""
        counts, usual = range(self.spec.max_sequences + 1), self.usual()
        at = bisect_right(counts, budget, key=lambda n: self.bytes(self.room(n, usual)))
        return self.room(counts[at - 1], usual)

    def usual(self) -> int:
        """Tokens of a usual request."""
        return min(self.spec.max_context, _USUAL_TOKENS)

    def with_one(self, context: int, room: tuple[int, ...]) -> tuple[int, ...]:
        """The blocks of one request of ``context`` tokens, in windowed groups at least ``room``."""
        groups = zip(self.spec.groups, self.of_one(context), room, strict=True)
        return tuple(max(one, some) if group.window else one for group, one, some in groups)

    def most(self) -> tuple[int, ...]:
        """The blocks of all sequences at full length, each with all rows of a step: more than can
        be of use in a windowed group but to the prefix cache."""
        return tuple(self.spec.max_sequences * n for n in self.of_one(self.spec.max_context))

    def of(self, count: int, context: int) -> tuple[int, ...]:
        """The blocks of so many requests of ``context`` tokens, at least of one of the longest."""
        bounds = zip(
            self.room(count, context),
            self.of_one(self.spec.max_context),
            self.most(),
            strict=True,
        )
        return tuple(min(max(some, one), most) for some, one, most in bounds)

    def within(self, budget: int) -> tuple[int, ...]:
        """The blocks for ``budget`` bytes, in which one of the longest requests fits: those of as
        many requests of usual length as are served at once, or as long ones as possible. Groups
        without a window get what is left: they hold requests of any length; once they have all
        that they can use, the others do."""
        served, limit, usual = self.spec.max_sequences, self.spec.max_context, self.usual()
        if self.bytes(self.of(served, usual)) <= budget:
            lengths = range(usual, limit + 1, self.size)
            at = bisect_right(lengths, budget, key=lambda n: self.bytes(self.of(served, n)))
            blocks = self.of(served, lengths[at - 1])
        else:
            counts = range(served + 1)
            at = bisect_right(counts, budget, key=lambda n: self.bytes(self.of(n, usual)))
            blocks = self.of(counts[at - 1], usual)
        for windowed in (False, True):
            blocks = self._with_rest(blocks, budget, windowed=windowed)
        return blocks

    def _with_rest(
        self, blocks: tuple[int, ...], budget: int, *, windowed: bool
    ) -> tuple[int, ...]:
        """``blocks``, and in the groups with a window, or in the others, what is left beside them,
        in the shares of what is the most of each."""
        left = tuple(
            (most - some) * ((group.window > 0) == windowed)
            for group, most, some in zip(self.spec.groups, self.most(), blocks, strict=True)
        )
        share = min(1.0, (budget - self.bytes(blocks)) / max(1, self.bytes(left)))
        return tuple(some + int(share * more) for some, more in zip(blocks, left, strict=True))


def _plan_slots(spec: StepInterface, budget_bytes: int | None, slot_tokens: int | None) -> KVPlan:
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
    spec: StepInterface,
    draft: StepInterface,
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


def _block_size(spec: StepInterface, wanted: int | None) -> int:
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
