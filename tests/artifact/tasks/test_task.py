from __future__ import annotations

import pytest

from optc.artifact.tasks.task import SPEED, Measure, Task, known_measures
from optc.errors import InputError

LOSS = Measure("loss", "what is lost", "samples", upper=True, ideal=0)
PACE = Measure("pace", "how fast it is", SPEED, upper=False)


def task(name: str, *measures: Measure) -> Task:
    return Task(name, "tensors", "the module", {"target": "tensors"}, measures)


def test_measures_by_name_and_source() -> None:
    made = task("a", LOSS, PACE)
    assert made.gates == ("loss", "pace")
    assert made.by_name["pace"] is PACE
    assert made.of(SPEED) == ("pace",)
    assert made.of("samples", SPEED) == made.gates
    assert made.of("other") == ()


def test_a_task_has_no_two_measures_of_one_name() -> None:
    with pytest.raises(ValueError, match="the task 'a' has two measures of one name"):
        task("a", LOSS, LOSS)


def test_tasks_may_share_measures_that_mean_the_same() -> None:
    other = Measure("loss", "in other words", "images", upper=True, ideal=0)
    found = known_measures([task("a", LOSS), task("b", PACE, other)])
    assert found == {"loss": LOSS, "pace": PACE}


@pytest.mark.parametrize(
    "other", [Measure("loss", "", "s", upper=False, ideal=0), Measure("loss", "", "s", upper=True)]
)
def test_a_bound_means_the_same_in_all_tasks(other: Measure) -> None:
    with pytest.raises(InputError, match="task 'b': the measure 'loss' is another one"):
        known_measures([task("a", LOSS), task("b", other)])
