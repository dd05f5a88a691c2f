"""The paged attention bodies against dense attention of each sequence by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.ir.test_functions import call
from tests.support import oracle
from tests.support.ir_text import Array, f32


@dataclass(frozen=True)
class Case:
    """Two groups of pools; the operator works in ``group``."""

    heads: int = 4
    kv_heads: int = 2
    key_dim: int = 4
    value_dim: int = 6
    window: int = 0
    softcap: float = 0.0
    block_size: int = 16
    group: int = 0
    blocks: int = 12
    dtype: str = "float32"
    query_bits: int = 0
    lengths: tuple[int, ...] = (40, 1, 17)  # after the step
    rows: tuple[int, ...] = (3, 1, 17)  # new in the step
    padding: int = 2
    chunk: int = 0
    sunk: bool = False
    leaning: bool = False
    distances: int = 0

    @property
    def by_head(self) -> dict[str, Array | None]:
        """Sinks and slopes, [H] each, and biases by distance [H, N]."""
        return {
            "sinks": 2 * f32(self.heads) if self.sunk else None,
            "slopes": np.abs(f32(self.heads, seed=1)) if self.leaning else None,
            "distance_bias": f32(self.heads, self.distances, seed=2) if self.distances else None,
        }


@dataclass(frozen=True)
class Step:
    """Operands of one step, and K and V of every sequence in order."""

    slot_mapping: Array
    query_starts: Array
    kv_lengths: Array
    block_tables: Array
    pools: tuple[Array, Array]
    keys: list[Array]
    values: list[Array]

    @property
    def inputs(self) -> list[Array]:
        return [self.slot_mapping, self.query_starts, self.kv_lengths, self.block_tables]


def make_step(case: Case) -> Step:
    """A scrambled pool that holds all but the new rows; blocks behind the window are released."""
    rng = np.random.default_rng(7)
    free = list(rng.permutation(case.blocks))
    width = -(-max(case.lengths) // case.block_size)
    tables = np.full((2, len(case.lengths), width), -1, np.int32)
    slots = np.full((2, sum(case.rows) + case.padding), -1, np.int32)
    lengths = np.full((2, len(case.lengths)), 1, np.int32)
    lengths[case.group] = case.lengths
    pools = [
        rng.standard_normal((case.blocks, case.kv_heads, case.block_size, dim)).astype(np.float32)
        for dim in (case.key_dim, case.value_dim)
    ]
    keys, values, row = [], [], 0
    for b, (length, new) in enumerate(zip(case.lengths, case.rows, strict=True)):
        k, v = f32(length, case.kv_heads, case.key_dim), f32(length, case.kv_heads, case.value_dim)
        blocks = [int(free.pop()) for _ in range(-(-length // case.block_size))]
        for index in range(length):
            block, offset = blocks[index // case.block_size], index % case.block_size
            if index >= length - new:
                slots[case.group, row] = block * case.block_size + offset
                row += 1
            else:  # pools hold what the type represents
                pools[0][block, :, offset] = oracle.represented(k[index], case.dtype)
                pools[1][block, :, offset] = oracle.represented(v[index], case.dtype)
        oldest = length - new
        first = max(0, oldest - case.window + 1) // case.block_size if case.window else 0
        tables[case.group, b, first : len(blocks)] = blocks[first:]
        keys.append(k)
        values.append(v)
    starts = np.cumsum([0, *case.rows]).astype(np.int32)
    return Step(slots, starts, lengths, tables, (pools[0], pools[1]), keys, values)


CASES = [
    Case(),
    Case(block_size=32, blocks=6),
    Case(window=5, group=1),
    Case(window=16, softcap=1.5),
    Case(window=1, kv_heads=4, padding=0),
    Case(kv_heads=1, heads=3, softcap=2.0, group=1),
    Case(lengths=(1,), rows=(1,), padding=5),
    Case(lengths=(33, 16, 15), rows=(1, 1, 1)),
    Case(dtype="bfloat16"),
    Case(dtype="int8"),
    Case(dtype="int4", key_dim=32, value_dim=64),
    Case(dtype="int4", key_dim=64, value_dim=32, query_bits=8, window=16, kv_heads=1),
    Case(dtype="bfloat16", window=16, softcap=1.5, kv_heads=1),
    Case(dtype="int8", query_bits=8, window=16, kv_heads=1),
    Case(dtype="int8", window=5, softcap=1.5, block_size=32, blocks=6),
    Case(sunk=True),
    Case(leaning=True),
    Case(chunk=8),
    Case(sunk=True, leaning=True, chunk=6, window=5, softcap=1.5, kv_heads=1),
    Case(dtype="bfloat16", sunk=True, leaning=True),
    Case(dtype="int8", sunk=True, leaning=True, chunk=16, kv_heads=4),
    Case(distances=9),
    Case(distances=60, leaning=True, sunk=True, window=16, softcap=1.5, dtype="bfloat16"),
]


def attributes_of(case: Case) -> dict[str, Any]:
    return {
        "num_heads": case.heads,
        "kv_num_heads": case.kv_heads,
        "scale": 0.4,
        "softcap": case.softcap,
        "window": case.window,
        "group": case.group,
        "layer": 0,
        "kv_dtype": case.dtype,
        "query_bits": case.query_bits,
        "chunk": case.chunk,
    }


def new_rows(case: Case, arrays: list[Array]) -> Array:
    """The new rows of all sequences [T, n * d], padded."""
    rows = np.concatenate([a[-n:].reshape(n, -1) for a, n in zip(arrays, case.rows, strict=True)])
    return np.concatenate([rows, f32(case.padding, rows.shape[1])])


def expected_out(case: Case, q: Array, step: Step) -> Array:
    parts = []
    if case.query_bits:
        q = oracle.represented(q.reshape(len(q), case.heads, -1), "int8").reshape(len(q), -1)
    for b, (low, high) in enumerate(zip(step.query_starts, step.query_starts[1:], strict=False)):
        k, v = (
            oracle.represented(a[b], case.dtype).reshape(len(a[b]), -1)
            for a in (step.keys, step.values)
        )
        shape = (case.heads, case.kv_heads, 0.4, case.softcap, case.window)
        rounds = case.dtype == "bfloat16"
        more = {"rounds": rounds, "chunk": case.chunk, **case.by_head}
        parts.append(oracle.attention(q[low:high], k, v, *shape, **more))
    return np.concatenate(parts)


def check_pools(case: Case, step: Step, got: tuple[Array, Array]) -> None:
    """New rows are at their slots and nothing else changed."""
    for pool, written, rows in zip(step.pools, got, (step.keys, step.values), strict=True):
        want = pool.copy()
        flat = [row for a, n in zip(rows, case.rows, strict=True) for row in a[-n:]]
        for slot, row in zip(step.slot_mapping[case.group], flat, strict=False):
            kept = oracle.represented(row, case.dtype)
            want[slot // case.block_size, :, slot % case.block_size] = kept
        np.testing.assert_array_equal(written, want)


@pytest.mark.parametrize("case", CASES)
def test_paged_attention(case: Case) -> None:
    step = make_step(case)
    q = f32(sum(case.rows) + case.padding, case.heads * case.key_dim)
    k, v = new_rows(case, step.keys), new_rows(case, step.values)
    inputs = [q, k, v, *step.pools, *step.inputs, None, *case.by_head.values()]
    out, *pools = call("PagedAttention", inputs, **attributes_of(case))
    check_pools(case, step, (pools[0], pools[1]))
    np.testing.assert_allclose(
        out[: sum(case.rows)], expected_out(case, q, step), rtol=2e-5, atol=1e-5
    )
    assert np.isfinite(out).all()


@pytest.mark.parametrize("half", [0, 1, 2])
@pytest.mark.parametrize("norms", [(False, False), (True, True), (False, True)])
def test_rotary_paged_attention(half: int, norms: tuple[bool, bool]) -> None:
    """It is head norm, rotary and paged attention in turn."""
    case = Case(window=5, softcap=1.5, sunk=True, leaning=True)
    step, total = make_step(case), sum(case.rows) + case.padding
    q, k = f32(total, case.heads * case.key_dim), f32(total, case.kv_heads * case.key_dim)
    v = new_rows(case, step.values)
    angle = f32(total, half)
    cos, sin = (np.cos(angle), np.sin(angle)) if half else (None, None)
    scales = [f32(case.key_dim) if used else None for used in norms]
    prepared = []
    for x, heads, scale in ((q, case.heads, scales[0]), (k, case.kv_heads, scales[1])):
        y = x if scale is None else oracle.head_norm(x, scale, heads, 1e-3)
        y = y if cos is None or sin is None else oracle.rotary(y, cos, sin, heads)
        prepared.append(y.astype(np.float32))
    behind = [*step.pools, *step.inputs, None, *case.by_head.values()]
    plain = call("PagedAttention", [*prepared, v, *behind], **attributes_of(case))
    fused = call(
        "RotaryPagedAttention",
        [np.concatenate([q, k, v], axis=1), cos, sin, *scales, *behind],
        **attributes_of(case),
        rotary_embedding_dim=2 * half,
        interleaved=0,
        epsilon=1e-3,
        key_dim=case.key_dim,
        value_dim=case.value_dim,
    )
    for got, want in zip(fused, plain, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)


def test_padding_alone_writes_nothing() -> None:
    case = Case()
    step = make_step(case)
    total = sum(case.rows) + case.padding
    q, k, v = f32(total, 16), f32(total, 8), f32(total, 12)
    inputs = [np.full_like(step.slot_mapping, -1), *step.inputs[1:]]
    _, *pools = call("PagedAttention", [q, k, v, *step.pools, *inputs], **attributes_of(case))
    for got, want in zip(pools, step.pools, strict=True):
        np.testing.assert_array_equal(got, want)
