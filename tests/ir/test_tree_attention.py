"""The paged attention bodies on trees of rows, against dense attention along each path."""

from __future__ import annotations

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
from tests.support.trees import path_to, random_parents

CASES = [
    (Case(), (1, 1, 9)),
    (Case(rows=(9, 1, 17), padding=0), (3, 1, 1)),
    (Case(window=5, group=1, rows=(12, 1, 17)), (1, 1, 4)),
    (Case(window=16, softcap=1.5, rows=(20, 1, 8)), (2, 1, 1)),
    (Case(window=1, kv_heads=4, rows=(6, 1, 6)), (1, 1, 1)),
    (Case(lengths=(9,), rows=(9,), padding=5, block_size=32), (1,)),
]


def expected_out(case: Case, q: Array, step: Step, parents: Array) -> Array:
    """Row by row: its sequence's earlier tokens and its path."""
    out = []
    for b, (low, high) in enumerate(zip(step.query_starts, step.query_starts[1:], strict=False)):
        before = case.lengths[b] - case.rows[b]
        for row in range(low, high):
            seen = [*range(before), *(before + r - low for r in path_to(parents, row))]
            k, v = (a[b][seen].reshape(len(seen), -1) for a in (step.keys, step.values))
            shape = (case.heads, case.kv_heads, 0.4, case.softcap, case.window)
            out.append(oracle.attention(q[row : row + 1], k, v, *shape))
    return np.concatenate(out)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("case", "roots"), CASES)
def test_a_row_sees_its_ancestors_only(case: Case, roots: tuple[int, ...], seed: int) -> None:
    step = make_step(case)
    parents = random_parents(case.rows, roots, seed)
    padded = np.append(parents, np.full(case.padding, -1, np.int32))
    q = f32(sum(case.rows) + case.padding, case.heads * case.key_dim)
    k, v = new_rows(case, step.keys), new_rows(case, step.values)
    out, *pools = call(
        "PagedAttention", [q, k, v, *step.pools, *step.inputs, padded], **attributes_of(case)
    )
    check_pools(case, step, (pools[0], pools[1]))
    wanted = expected_out(case, q, step, parents)
    np.testing.assert_allclose(out[: sum(case.rows)], wanted, rtol=2e-5, atol=1e-5)
    assert np.isfinite(out).all()


def test_a_chain_is_what_it_is_without_a_tree() -> None:
    case = Case(window=5, group=1)
    step = make_step(case)
    total = sum(case.rows) + case.padding
    q, k, v = (f32(total, width) for width in (16, 8, 12))
    chain = np.append(random_parents(case.rows, case.rows, 0), [-1, -1]).astype(np.int32)
    inputs = [q, k, v, *step.pools, *step.inputs]
    for plain, tree in zip(
        call("PagedAttention", inputs, **attributes_of(case)),
        call("PagedAttention", [*inputs, chain], **attributes_of(case)),
        strict=True,
    ):
        np.testing.assert_array_equal(plain[: sum(case.rows)], tree[: sum(case.rows)])
