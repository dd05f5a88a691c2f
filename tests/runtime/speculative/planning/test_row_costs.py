from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optc.runtime.executable.executable import Float32, StepBatch
from optc.runtime.speculative.drafting import MeasuredCosts
from optc.runtime.speculative.planning.costs_cache import CostsCache
from optc.runtime.speculative.planning.row_costs import RowCosts, measure_row_costs
from tests.runtime.support.toy import ToyExecutable, toy_spec


class Clock:
    """Virtual seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TimedToy(ToyExecutable):
    """A step takes 1 and a tenth a row; the first one much more, and those that are held up."""

    def __init__(self, clock: Clock, held_up: float = 0.0, **limits: int) -> None:
        super().__init__(toy_spec((0, 5), **limits))
        self.clock = clock
        self.held_up = held_up
        self.rng = np.random.default_rng(0)

    def step(self, batch: StepBatch) -> Float32:
        self.clock.now += (1.0 if self.batches else 100.0) + 0.1 * len(batch.tokens)
        self.clock.now += 3.0 * (self.rng.random() < self.held_up)
        return super().step(batch)


def test_costs_are_linear_between_and_beyond_the_measured_rows() -> None:
    costs = RowCosts((1, 4, 8), (1.0, 2.5, 3.0))
    assert [costs.at(rows) for rows in (0, 1, 2, 4, 6, 8, 12)] == pytest.approx(
        [0.0, 1.0, 1.5, 2.5, 2.75, 3.0, 3.5]
    )
    assert RowCosts((2,), (4.0,)).at(3) == 6.0


def test_an_engine_is_measured_within_its_limits() -> None:
    clock = Clock()
    executable = TimedToy(clock, max_rows=9, max_logit_rows=6)
    costs = measure_row_costs(executable, clock)
    assert costs.rows == (1, 2, 3, 4, 5, 6)
    assert costs.seconds == pytest.approx([1 + 0.1 * rows for rows in costs.rows])
    assert len(executable.batches) == 4 * 6, "a warm-up and three rounds; the limit is a second"
    assert all(len(b.logit_rows) == len(b.tokens) for b in executable.batches)
    for batch in executable.batches:  # rows of one token would choose the same experts
        assert len(set(batch.tokens.tolist())) == len(batch.tokens)


def test_where_an_engine_reads_only_the_last_row_has_logits() -> None:
    executable = TimedToy(Clock(), max_rows=9, max_logit_rows=6)
    assert measure_row_costs(executable, executable.clock, reads=True).rows == (1, 2, 3, 4, 5, 6)
    for batch in executable.batches:
        assert batch.logit_rows.tolist() == [len(batch.tokens) - 1]


@pytest.mark.parametrize(
    ("limits", "rows"),
    [
        ({"max_context": 8, "max_rows": 16, "max_logit_rows": 16}, (1, 2, 3, 4, 5, 6)),
        ({"max_context": 9, "max_rows": 16, "max_logit_rows": 16}, (1, 2, 3, 4, 5, 6, 8)),
        ({"max_context": 64, "max_rows": 3, "max_logit_rows": 16}, (1, 2, 3)),
    ],
)
def test_steps_fit_behind_one_token_at_least(limits: dict[str, int], rows: tuple[int, ...]) -> None:
    assert measure_row_costs(TimedToy(Clock(), **limits), Clock()).rows == rows


def test_steps_of_more_than_sixteen_rows_have_fewer_rounds() -> None:
    executable = TimedToy(Clock(), max_rows=20, max_logit_rows=20)
    measure_row_costs(executable, executable.clock)
    rows = [len(batch.tokens) for batch in executable.batches]
    assert (rows.count(12), rows.count(16), rows.count(20)) == (4, 4, 3), "with one that warms up"


@pytest.mark.parametrize("held_up", [0.3, 0.6])
def test_steps_that_are_held_up_do_not_count(held_up: float) -> None:
    clock = Clock()
    executable = TimedToy(clock, held_up, max_rows=9, max_logit_rows=6)
    seconds = measure_row_costs(executable, clock).seconds
    assert list(seconds) == sorted(seconds)
    assert seconds == pytest.approx([1 + 0.1 * rows for rows in range(1, 7)], rel=0.2)


def test_json_gives_the_same() -> None:
    costs = RowCosts((1, 4), (1.5, 2.5))
    assert RowCosts.from_json(costs.to_json()) == costs


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"rows": 1, "seconds": [1.0]},
        {"rows": [1], "seconds": 1.0},
        {"rows": [], "seconds": []},
        {"rows": [1, 2], "seconds": [1.0]},
        {"rows": [2, 1], "seconds": [1.0, 2.0]},
        {"rows": [1], "seconds": [0.0]},
        {"rows": [1], "seconds": ["x"]},
    ],
)
def test_what_is_no_measurement(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"rows|seconds"):
        RowCosts.from_json(value)


def test_measured_once_for_an_artifact_and_anew_where_the_file_is_damaged(tmp_path: Path) -> None:
    def loaded() -> ToyExecutable:
        return ToyExecutable(toy_spec())

    costs = MeasuredCosts({"target": "ab/target"}, 2, CostsCache(tmp_path))
    first = loaded()
    kept = costs.of("target", first)
    assert first.batches
    again = loaded()
    assert costs.of("target", again) == kept
    assert not again.batches, "nothing is run"
    other = loaded()
    MeasuredCosts({"target": "ab/target"}, 1, CostsCache(tmp_path)).of("target", other)
    assert other.batches, "another number of threads"
    for path in tmp_path.iterdir():
        path.write_text(path.read_text().replace('"seconds": [', '"seconds": ["x", '))
    damaged = loaded()
    costs.of("target", damaged)
    assert damaged.batches
    last = loaded()
    costs.of("target", last)
    assert not last.batches, "and written whole"


def test_without_cache_every_load_measures(tmp_path: Path) -> None:
    costs = MeasuredCosts({"target": "ab"}, 2, None)
    for _ in range(2):
        executable = ToyExecutable(toy_spec())
        costs.of("target", executable)
        assert executable.batches


def test_a_table_holds_the_times_of_all_numbers_of_rows() -> None:
    costs = RowCosts((1, 4), (1.5, 3.0))
    for rows in (1, 2, 5, 8):
        table = costs.upto(rows)
        assert table[: rows + 1] == [costs.at(n) for n in range(rows + 1)]
