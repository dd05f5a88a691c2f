"""The search: with a measurer that is made up, over many ladders."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest

from optc.compiling.ladder.rungs import Rung, ordered
from optc.compiling.ladder.search import Search, Trial
from tests.compiling.ladder.rung_cases import rung

LADDER = (
    rung("two", 500.0, 0.1, compile_s=300),
    rung("four", 400.0, 0.008, compile_s=300),
    rung("six", 300.0, 0.0015, compile_s=300),
    rung("eight", 200.0, 0.0016),
    rung("half", 100.0, 0.0001),
    rung("float", 50.0, 0.000001),
)


def measurer(losses: Mapping[str, float], bound: float) -> Callable[[Rung], Trial]:
    """Tells the loss of each rung, and whether it holds."""

    def attempt(one: Rung) -> Trial:
        loss = losses[one.recipe]
        held = loss <= bound
        return Trial(held, {"kl_mean": loss}, () if held else ("kl_mean",), 60)

    return attempt


def searched(
    losses: Mapping[str, float], bound: float, rungs: tuple[Rung, ...] = LADDER
) -> tuple[str | None, Search]:
    search = Search(rungs, {"kl_mean": bound})
    best = search.run(measurer(losses, bound))
    return None if best is None else best.recipe, search


def ladders(count: int) -> list[tuple[random.Random, tuple[Rung, ...]]]:
    """Ladders of any lengths; what is faster need not promise less."""
    found = []
    for seed in range(count):
        draw = random.Random(seed)
        rungs = [
            rung(
                f"r{index}",
                draw.uniform(10, 1000),
                10 ** draw.uniform(-6, -1),
                compile_s=draw.uniform(10, 400),
            )
            for index in range(draw.randint(1, 14))
        ]
        found.append((draw, ordered(rungs, "decode")))
    return found


def test_the_first_rung_that_holds_is_found_where_losses_are_in_proportion_to_promises() -> None:
    """Whatever the factor between them, within what a search allows for."""
    for draw, rungs in ladders(300):
        factor = 10 ** draw.uniform(-1, 2)
        bound = 10 ** draw.uniform(-6, 0)
        losses = {one.recipe: factor * one.promised["kl_mean"] for one in rungs}
        expected = next((one.recipe for one in rungs if losses[one.recipe] <= bound), None)
        assert searched(losses, bound, rungs)[0] == expected


def test_whatever_is_measured_only_a_rung_that_held_is_best_and_each_has_one_outcome() -> None:
    for draw, rungs in ladders(300):
        bound = 10 ** draw.uniform(-5, -1)
        losses = {one.recipe: 10 ** draw.uniform(-7, 0) for one in rungs}
        found, search = searched(losses, bound, rungs)
        assert found is None or losses[found] <= bound
        held = [name for name, trial in search.trials.items() if trial.held]
        assert (found is None) == (not held)
        assert not set(search.trials) & set(search.skipped)
        better = (
            [one.recipe for one in rungs[: [one.recipe for one in rungs].index(found)]]
            if (found is not None)
            else [one.recipe for one in rungs]
        )
        assert set(better) <= set(search.trials) | set(search.skipped)


def test_before_giving_up_the_most_exact_rung_is_tried() -> None:
    for draw, rungs in ladders(200):
        losses = {one.recipe: draw.uniform(0.5, 1.0) for one in rungs}
        found, search = searched(losses, 1e-7, rungs)
        most_exact = min(rungs, key=lambda one: one.promised["kl_mean"])
        assert found is None
        assert most_exact.recipe in search.trials
        assert search.nearest() is not None


def test_the_first_trial_is_one_that_is_compiled_soon() -> None:
    """A GPTQ of hours comes only once it is known that the model takes its int8 well."""
    search = Search(LADDER, {"kl_mean": 0.01})
    first = search.next()
    assert first is not None
    assert first.recipe == "eight"


def test_a_model_of_outliers_needs_few_trials() -> None:
    """SmolLM2 with int8 activations of a scale each token: eight times six in one."""
    losses = {"two": 0.9, "four": 0.0567, "six": 0.006, "eight": 0.0445, "half": 1e-4, "float": 0}
    found, search = searched(losses, 0.01)
    assert found == "six"
    assert list(search.trials) == ["eight", "six"]
    assert search.skipped == {
        "two": "promises less than eight, which fell",
        "four": "promises less than eight, which fell",
    }


def test_where_a_rung_held_those_expected_to_lose_many_times_more_are_skipped() -> None:
    losses = {"two": 0.2, "four": 0.02, "six": 0.002, "eight": 0.0015, "half": 0, "float": 0}
    found, search = searched(losses, 0.002)
    assert found == "six"
    assert search.skipped == {"two": "is expected to lose 48 times what is allowed"}
    assert list(search.trials) == ["eight", "six", "four"]


def test_the_more_rungs_were_measured_the_less_hope_is_needed_to_skip_one() -> None:
    """SmolLM2: its 4 bits are kept as they are, so that all rungs but one lose little."""
    promises = {"three": 0.2, "kv4": 0.06, "four": 0.05, "six": 0.009, "eight": 0.0065}
    losses = {"three": 0.1, "kv4": 0.0052, "four": 0.0022, "six": 0.0018, "eight": 0.0009}
    rungs = tuple(
        rung(name, 500.0 - 100 * index, promise, compile_s=300 if index < 3 else 60)
        for index, (name, promise) in enumerate(promises.items())
    )
    found, search = searched(losses, 0.01, rungs)
    assert found == "kv4"
    assert "three" not in search.trials
    assert search.skipped == {"three": "is expected to lose 6 times what is allowed"}


def test_a_rung_that_is_slow_enough_is_no_evidence_of_quality() -> None:
    """One that fell by speed says nothing about less exact ones, which are faster."""
    search = Search(LADDER, {"decode_speedup": 3.0})

    def attempt(one: Rung) -> Trial:
        pace = (one.prediction.decode_tokens_per_s or 0) / 100
        held = pace >= 3
        return Trial(held, {"decode_speedup": pace}, () if held else ("decode_speedup",), 60)

    best = search.run(attempt)
    assert best is not None
    assert best.recipe == "two"
    assert search.skipped == {}


def test_recipes_that_promise_nothing_are_tried() -> None:
    rungs = (rung("theirs", 900.0), *LADDER)
    losses = {one.recipe: one.promised.get("kl_mean", 0.5) for one in rungs}
    found, search = searched(losses, 0.002, rungs)
    assert found == "six"
    assert "theirs" in search.trials
    assert searched(losses | {"theirs": 0.001}, 0.002, rungs)[0] == "theirs"


def test_an_engine_that_could_not_be_built_says_nothing_about_others() -> None:
    def attempt(one: Rung) -> Trial:
        if one.recipe == "eight":
            return Trial(False, why="it does not fit")
        return Trial(one.recipe == "four", {"kl_mean": 0.001}, (), 60)

    search = Search(LADDER, {"kl_mean": 0.01})
    best = search.run(attempt)
    assert best is not None
    assert best.recipe == "four"


def test_gates_without_bounds_of_their_own_are_ordered_by_the_mean_divergence() -> None:
    search = Search(LADDER, {"common_continuation": 100.0})

    def attempt(one: Rung) -> Trial:
        return Trial(False, {"common_continuation": 5.0}, ("common_continuation",), 60)

    assert search.run(attempt) is None
    assert search.nearest() is not None


@pytest.mark.parametrize("bound", [0.0, 1e-12])
def test_bounds_of_nothing_are_no_errors(bound: float) -> None:
    losses = {one.recipe: one.promised["kl_mean"] for one in LADDER}
    found, search = searched(losses, bound)
    assert found is None
    nearest = search.nearest()
    assert nearest is not None
    assert nearest[0].recipe == "float"
