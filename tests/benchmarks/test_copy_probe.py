from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.proof.copy_probe import BETWEEN, COPIED, SIZE, copy_nll, probes
from optc.executable.executable import EngineSpec, KVGroup, LayerKV, StepBatch

V = 8


class Certain:
    """Says that token ``position % 8`` comes next, with a logit of 2, and counts nothing else."""

    def __init__(self) -> None:
        layers = (LayerKV(0, 1, 8, 8, "float32"),)
        self.spec = EngineSpec(V, 512, 100, 1, 64, 16, True, (KVGroup(0, (0,)),), layers)

    def allocate_kv(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        assert blocks_per_group[0] * block_size >= SIZE

    def step(self, batch: StepBatch) -> Any:
        logits = np.zeros((len(batch.logit_rows), V), np.float32)
        positions = batch.positions[batch.logit_rows]
        logits[np.arange(len(logits)), positions % V] = 2
        return logits


def test_probes_repeat_a_text_behind_other_tokens() -> None:
    rows = probes(np.arange(1000, dtype=np.int32), 3)
    assert rows.shape == (3, SIZE)
    assert rows[:, 0].tolist() == [0, 236, 472]
    for row in rows:
        assert (np.diff(row[: COPIED + BETWEEN]) == 1).all()
        np.testing.assert_array_equal(row[:COPIED], row[COPIED + BETWEEN :])


def test_the_second_copy_alone_is_counted() -> None:
    row = (np.arange(SIZE) - 1).astype(np.int32) % V  # every token is the one foretold
    row[: COPIED + BETWEEN + 1] = (row[: COPIED + BETWEEN + 1] + 1) % V  # but for the first copy
    other = row.copy()
    other[-1] = (other[-1] + 1) % V
    right = float(np.log(np.exp(2) + V - 1) - 2)
    assert abs(copy_nll(Certain(), [row]) - right) < 1e-6  # type: ignore[arg-type]
    missed = right + 2 / (2 * (COPIED - 1))
    assert abs(copy_nll(Certain(), [row, other]) - missed) < 1e-6  # type: ignore[arg-type]
