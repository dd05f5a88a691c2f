"""Paged attention whose latest tokens are in int8 pools of their own, against dense attention of
each row by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.ir.test_functions import call
from tests.ir.test_paged_attention import (
    Case,
    Step,
    attributes_of,
    check_pools,
    make_step,
    new_rows,
)
from tests.support import oracle
from tests.support.ir_text import Array, f32

NARROW = Case(dtype="int4", key_dim=32, value_dim=64)
CASES = [
    (NARROW, 4),
    (replace(NARROW, query_bits=8, lengths=(40, 1, 33), rows=(1, 1, 33)), 8),
    (replace(NARROW, window=20, softcap=1.5, kv_heads=1), 16),
    (replace(NARROW, sunk=True, leaning=True, chunk=12, kv_heads=4), 5),
]


def steps(case: Case, recent: int) -> tuple[Step, Step]:
    """The same sequences in int4 pools of group 0, and in int8 pools of group 1."""
    far = make_step(replace(case, group=0))
    near = make_step(replace(case, group=1, dtype="int8", window=recent, chunk=0))
    return far, near


def joined(far: Step, near: Step) -> list[Array]:
    """The inputs of a step that has both."""
    pairs = zip(far.inputs, near.inputs, strict=True)
    return [one if one.ndim == 1 else np.stack([one[0], two[1]]) for one, two in pairs]


def expected_rows(case: Case, recent: int, q: Array, step: Step) -> Array:
    """Row by row: tokens less than ``recent`` back as int8 has them, those before as int4 has."""
    if case.query_bits:
        q = oracle.represented(q.reshape(len(q), case.heads, -1), "int8").reshape(len(q), -1)
    rows, shape = [], (case.heads, case.kv_heads, 0.4, case.softcap, case.window)
    row = 0
    for new, keys, values in zip(case.rows, step.keys, step.values, strict=True):
        for own in range(len(keys) - new, len(keys)):
            first = max(own + 1 - recent, 0)
            k, v = (
                np.concatenate(
                    [
                        oracle.represented(one[:first], "int4"),
                        oracle.represented(one[first : own + 1], "int8"),
                    ]
                ).reshape(own + 1, -1)
                for one in (keys, values)
            )
            more = {"chunk": case.chunk, **case.by_head}
            rows.append(oracle.attention(q[row : row + 1], k, v, *shape, **more))
            row += 1
    return np.concatenate(rows)


@pytest.mark.parametrize(("case", "recent"), CASES)
def test_the_latest_tokens_are_read_from_their_own_pools(case: Case, recent: int) -> None:
    far, near = steps(case, recent)
    q = f32(sum(case.rows) + case.padding, case.heads * case.key_dim)
    k, v = new_rows(case, far.keys), new_rows(case, far.values)
    behind = [*joined(far, near), None, *case.by_head.values(), *near.pools]
    attributes = {**attributes_of(case), "recent": recent, "recent_group": 1, "recent_layer": 1}
    out, *pools = call("PagedAttention", [q, k, v, *far.pools, *behind], **attributes)
    check_pools(replace(case, group=0), far, (pools[0], pools[1]))
    check_pools(replace(case, group=1, dtype="int8"), near, (pools[2], pools[3]))
    want = expected_rows(case, recent, q, far)
    np.testing.assert_allclose(out[: sum(case.rows)], want, rtol=2e-5, atol=1e-5)
    narrow = call("PagedAttention", [q, k, v, *far.pools, *behind[:7]], **attributes_of(case))[0]
    assert np.abs(narrow[: sum(case.rows)] - want).max() > 1e-2
