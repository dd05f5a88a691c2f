"""Linear attention with a decay, dense and over states in pools, against float64."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from optc.runtime.executable.recurrent_state import state_slots, state_width
from tests.ir.test_packed_rows import Array
from tests.ir.test_packed_rows import evaluate_all as evaluate
from tests.support import oracle

HEADS, KEY, VALUE, BLOCK = 4, 16, 16, 16
STATE_SLOTS = state_slots(KEY, VALUE)


#: Key heads, the delta rule, and what decays.
KINDS = [(4, 1, "head"), (2, 0, "head"), (2, 1, "key"), (1, 0, "key"), (1, 0, "rates")]
RATES = -np.random.default_rng(7).exponential(1, (KEY, HEADS * VALUE)).astype(np.float32)


def drawn(
    rng: np.random.Generator, rows: int, key_heads: int, decays: str = "head"
) -> dict[str, Array]:
    """Operands of so many rows, heads apart."""
    shapes = {
        "q": (key_heads, KEY),
        "k": (key_heads, KEY),
        "v": (HEADS, VALUE),
        "decay": {"head": (HEADS,), "key": (HEADS, KEY), "rates": (HEADS, VALUE)}[decays],
        "beta": (HEADS,),
    }
    found = {n: rng.standard_normal((rows, *s)).astype(np.float32) for n, s in shapes.items()}
    found["decay"] = -np.abs(found["decay"])
    found["k"] /= np.linalg.norm(found["k"], axis=-1, keepdims=True)
    if decays == "rates":
        found["decay"] = -found["decay"]
        del found["beta"]
    return found


def wanted_of(operands: dict[str, Array], delta: int, decays: str) -> tuple[Array, Array]:
    rates = RATES if decays == "rates" else None
    return oracle.linear_attention(
        **{"beta": None, **operands}, scale=0.25, delta=delta, rates=rates
    )


def folded(operands: dict[str, Array]) -> dict[str, Array]:
    return {n: x.reshape(len(x), -1) for n, x in operands.items()}


def attributes(key_heads: int, delta: int, decays: str = "head") -> dict[str, Any]:
    sizes = {"num_heads": HEADS, "key_heads": key_heads, "key_dim": KEY, "value_dim": VALUE}
    return {**sizes, "delta": delta, "scale": 0.25, "decays": KEY if decays == "key" else 1}


@pytest.mark.parametrize(("key_heads", "delta", "decays"), KINDS)
def test_dense(key_heads: int, delta: int, decays: str) -> None:
    rng, options = np.random.default_rng(0), attributes(key_heads, delta, decays)
    sequences = [drawn(rng, 7, key_heads, decays) for _ in range(2)]
    whole = {n: np.stack([folded(s)[n] for s in sequences]) for n in sequences[0]}
    more = {"rates": RATES} if decays == "rates" else {}
    (out,) = evaluate("LinearAttention", whole | more, options)
    first = {n: x[:, :3] for n, x in whole.items()}
    rest = {n: x[:, 3:] for n, x in whole.items()}
    none = {"past": np.zeros((2, HEADS, KEY, VALUE), np.float32)}
    begin, state = evaluate("LinearAttention", {**first, **more, **none}, options)
    end, last = evaluate("LinearAttention", {**rest, **more, "past": state}, options)
    for b, operands in enumerate(sequences):
        want, states = wanted_of(operands, delta, decays)
        np.testing.assert_allclose(out[b], want.reshape(7, -1), atol=1e-5)
        np.testing.assert_allclose(last[b], states[-1], atol=1e-5)
    np.testing.assert_allclose(np.concatenate([begin, end], axis=1), out, atol=1e-5)


def halves(state: Array) -> list[Array]:
    """A state [H, Dk, Dv] as the first slots of a block in each pool."""
    width = state_width(KEY, VALUE)
    return [half.reshape(HEADS, STATE_SLOTS, width) for half in np.split(state, 2, axis=1)]


@pytest.mark.parametrize("drafts", [(0, 0, 0, 0), (1, 1, 18, 2)])
@pytest.mark.parametrize(("key_heads", "delta", "decays"), KINDS)
def test_states_come_from_pools_and_go_there(
    key_heads: int, delta: int, decays: str, drafts: tuple[int, ...]
) -> None:
    """Drafts, which are the last rows of a sequence and have no slots, leave no states."""
    rng = np.random.default_rng(1)
    before, new = [0, 3, 16, 30], [2, 1, 20, 3]
    whole = [drawn(rng, b + n, key_heads, decays) for b, n in zip(before, new, strict=True)]
    wanted = [wanted_of(one, delta, decays) for one in whole]
    tables = np.full((2, 4, 3), -1, np.int32)
    tables[1] = [[4, -1, -1], [6, -1, -1], [1, 5, 3], [-1, 0, 2]]
    tables[1, 3, 0] = 8
    starts = np.cumsum([0, *new]).astype(np.int32)
    width = state_width(KEY, VALUE)
    pools = [np.full((9, HEADS, BLOCK, width), np.nan, np.float32) for _ in range(2)]
    for s, b in enumerate(before):
        if b:
            for pool, half in zip(pools, halves(wanted[s][1][b - 1]), strict=True):
                pool[tables[1, s, (b - 1) // BLOCK], :, :STATE_SLOTS] = half
    slots = [
        int(tables[1, s, t // BLOCK]) * BLOCK + t % BLOCK if t < b + new[s] - drafts[s] else -1
        for s, b in enumerate(before)
        for t in range(b, b + new[s])
    ]
    rows = [{n: x[b:] for n, x in one.items()} for one, b in zip(whole, before, strict=True)]
    rows.append(drawn(rng, 1, key_heads, decays))  # a row of no sequence
    joined = folded({n: np.concatenate([one[n] for one in rows]) for n in rows[0]})
    out, *after = evaluate(
        "PagedLinearAttention",
        {
            **joined,
            **({"rates": RATES} if decays == "rates" else {}),
            "k_pool": pools[0],
            "v_pool": pools[1],
            "slot_mapping": np.array([[-1] * (len(slots) + 1), [*slots, -1]], np.int32),
            "query_starts": starts,
            "kv_lengths": np.array([[0] * 4, [len(w["q"]) for w in whole]], np.int32),
            "block_tables": tables,
        },
        {**attributes(key_heads, delta, decays), "group": 1, "layer": 0},
    )
    for s, (start, end) in enumerate(pairwise(starts)):
        want, states = wanted[s]
        np.testing.assert_allclose(
            out[start:end], want[before[s] :].reshape(end - start, -1), atol=1e-5
        )
        length = before[s] + new[s] - drafts[s]
        for block in range(before[s] // BLOCK, -(-length // BLOCK)):
            last = min((block + 1) * BLOCK, length) - 1
            for pool, half in zip(after, halves(states[last]), strict=True):
                np.testing.assert_allclose(
                    pool[tables[1, s, block], :, :STATE_SLOTS], half, atol=1e-5
                )
