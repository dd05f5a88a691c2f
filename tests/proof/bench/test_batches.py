"""Steps made up for measuring keep the contract that the toy engine checks."""

from __future__ import annotations

from optc.proof.bench.batches import block_count, ragged_batch, step_batch
from tests.runtime.support.toy import ToyExecutable, toy_spec


def test_the_engine_takes_them() -> None:
    """The toy checks types, shapes and slots, and would read NaN where nobody wrote."""
    spec = toy_spec((0, 6), max_rows=16, max_sequences=8)
    engine = ToyExecutable(spec)
    engine.allocate_kv((16, 16), 4)
    for batch in (step_batch(spec, 2, 8, 8, 4), ragged_batch(spec, [(3, 3), (7, 7), (1, 1)], 4)):
        assert engine.step(batch).shape == (len(batch.logit_rows), spec.vocab_size)


def test_sequences_go_on_where_they_are() -> None:
    spec = toy_spec((0, 6))
    batch = ragged_batch(spec, [(2, 9), (1, 4)], 4)
    assert batch.positions.tolist() == [7, 8, 3]
    assert batch.query_starts.tolist() == [0, 2, 3]
    assert batch.kv_lengths.tolist() == [[9, 4]] * 2
    assert batch.block_tables.tolist() == [[[0, 1, 2], [3, -1, -1]]] * 2
    assert batch.slot_mapping.tolist() == [[7, 8, 15]] * 2
    assert batch.logit_rows.tolist() == [1, 2], "the last row of each"
    assert batch.tokens.tolist() == [0, 1, 2]


def test_blocks_are_counted() -> None:
    spec = toy_spec()
    for sequences, length in ((1, 1), (3, 4), (3, 5)):
        batch = step_batch(spec, sequences, 1, length, 4)
        assert batch.block_tables.max() + 1 == block_count(sequences, length, 4)
