from __future__ import annotations

import numpy as np
import pytest

from optc.errors import InputError
from optc.runtime.executable.executable import StepBatch
from optc.runtime.executable.step_limits import check_limits
from tests.runtime.support.toy import toy_spec

SPEC = toy_spec(max_rows=6, max_sequences=4, max_logit_rows=3)


def step(rows: int, sequences: int, logit_rows: int) -> StepBatch:
    zeros = np.zeros
    return StepBatch(
        tokens=zeros(rows, np.int32),
        positions=zeros(rows, np.int32),
        slot_mapping=zeros((1, rows), np.int32),
        query_starts=zeros(sequences + 1, np.int32),
        kv_lengths=zeros((1, sequences), np.int32),
        block_tables=zeros((1, sequences, 9), np.int32),
        logit_rows=zeros(logit_rows, np.int32),
    )


@pytest.mark.parametrize("shape", [(1, 1, 1), (6, 4, 3)])
def test_steps_within_the_limits(shape: tuple[int, int, int]) -> None:
    check_limits(step(*shape), SPEC)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((0, 1, 1), "step: 0 rows; the engine takes 1 to 6 in one step"),
        ((7, 1, 1), "step: 7 rows; the engine takes 1 to 6 in one step"),
        ((6, 0, 1), "step: 0 sequences; the engine takes 1 to 4 in one step"),
        ((6, 5, 1), "step: 5 sequences; the engine takes 1 to 4 in one step"),
        ((6, 4, 0), "step: 0 rows of logits; the engine takes 1 to 3 in one step"),
        ((6, 4, 4), "step: 4 rows of logits; the engine takes 1 to 3 in one step"),
    ],
)
def test_steps_beyond_them(shape: tuple[int, int, int], message: str) -> None:
    with pytest.raises(InputError) as caught:
        check_limits(step(*shape), SPEC)
    assert str(caught.value) == message
