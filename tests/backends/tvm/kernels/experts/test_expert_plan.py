"""The plan of a step against NumPy's stable sort."""

from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.kernels.experts.expert_plan import SPAN_ROWS, ExpertPlan
from optc.errors import UnsupportedError
from tests.backends.tvm.experts.cases import planned
from tests.backends.tvm.kernel_cases import TARGETS, Array, blank, isa_named, run

CONFIG = ExpertPlan(experts=24, chosen=3)


def plan(config: ExpertPlan, target: str, experts: Array) -> list[Array]:
    size = experts.size
    outputs = [blank(size, dtype="int32"), blank(size, 3, dtype="int32"), blank(1, dtype="int32")]
    return run(config, isa_named(target), experts, *outputs)[1:]


@pytest.mark.parametrize("target", TARGETS)
def test_is_a_stable_sort_with_spans_of_at_most_so_many_rows(target: str) -> None:
    rng = np.random.default_rng(0)
    for tokens in (1, 2, 7, 70, 500):
        few = rng.integers(0, 24, 5)  # experts with many rows, and many without any
        for experts in (rng.integers(0, 24, (tokens, 3)), few[rng.integers(0, 5, (tokens, 3))]):
            chosen = experts.astype(np.int32)
            for ours, expected in zip(plan(CONFIG, target, chosen), planned(chosen), strict=True):
                np.testing.assert_array_equal(ours, expected)


def test_spans_cover_the_rows_of_each_expert_about_equally() -> None:
    _, spans, count = plan(CONFIG, "x86-64-v3", np.full((200, 3), 7, np.int32))
    assert count == -(-600 // SPAN_ROWS)
    assert spans[: count[0]].tolist() == [[7, 0, 200], [7, 200, 400], [7, 400, 600]]


def test_none_of_no_experts_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="0 of 4 experts cannot be chosen"):
        ExpertPlan(4, 0)
