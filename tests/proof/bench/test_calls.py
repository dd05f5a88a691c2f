"""Whole calls: what is counted, and how two engines compare."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from optc.errors import InputError
from optc.proof.bench.calls import Called, Calls, compare_calls, fitting, measure_calls


def calls(done: list[str], name: str, least: int = 1, most: int = 64) -> Calls:
    def run(count: int) -> Mapping[str, float]:
        done.append(f"{name}{count}")
        return {"tokens": 3.0 * count}

    return Calls("texts", run, least, most)


def test_engines_take_turns_and_the_first_call_does_not_count() -> None:
    done: list[str] = []
    found = measure_calls([calls(done, "a"), calls(done, "b")], [1, 4], rounds=2)
    assert done == ["a1", "b1", "a1", "b1", "a1", "b1", "a4", "b4", "a4", "b4", "a4", "b4"]
    assert [[one.concurrency for one in pair] for pair in found] == [[1, 1], [4, 4]]
    assert found[1][0].amounts == {"tokens": 24.0}
    assert len(found[1][0].seconds) == 2


def test_figures_of_calls() -> None:
    found = Called(4, [0.5, 1.0, 0.5], {"tokens": 20.0}).to_json("texts")
    assert found["items_per_s"] == 8
    assert found["tokens_per_s"] == 10
    assert found["audio_seconds_per_s"] is None
    assert found["latency_ms"]["p50"] == 500


def test_two_engines_side_by_side() -> None:
    pair = [Called(2, [1.0, 1.0, 2.0], {}), Called(2, [0.5, 0.25, 1.0], {})]
    rate, time = compare_calls([pair])
    assert (rate.metric, rate.concurrency, rate.a, rate.b) == ("items_per_s", 2, 2.0, 4.0)
    assert (rate.ratio, rate.low, rate.high) == (2.0, 2.0, 4.0)
    assert (time.metric, time.ratio) == ("call_ms", 0.5)
    assert np.isclose(time.a or 0, 1000)


def test_only_what_all_take_is_measured() -> None:
    warnings: list[str] = []
    both = [calls([], "a", 2, 8), calls([], "b", 1, 4)]
    assert fitting(both, [1, 2, 4, 8], warnings) == [2, 4]
    assert warnings == ["1, 8 at once are left out: a call has 2 to 4 texts"]
    with pytest.raises(InputError, match="a call has 2 to 4 texts, not 9"):
        fitting(both, [9], warnings)
