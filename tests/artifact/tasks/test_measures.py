"""A bound of a measure means what its name says, in every task."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from optc import registry
from optc.artifact.tasks import shown
from optc.artifact.tasks.shown import FACES, reason_against
from optc.artifact.tasks.task import Measure
from optc.artifact.tasks.tensors import TENSORS

MEASURES = {
    f"{task.name}: {one.name}": one
    for task in registry.tasks().values()
    if task.name != "text-generation"  # has tests of its own
    for one in task.measures
}
#: What the name of a measure tells of an engine that loses nothing.
ALL_OF_IT = ("agreement", "cosine", "recall", "ssim")
NOTHING_OF_IT = ("error",)
OF_SAMPLES_OR_MACHINE = ("_db", "speedup")


@pytest.mark.parametrize("name", MEASURES)
def test_an_engine_that_loses_nothing_is_at_its_best(name: str) -> None:
    one = MEASURES[name]
    assert one.ideal == _ideal(one), "what --gate says is kept"
    assert one.upper is (one.ideal == 0), "what is best at nothing is bounded from above"


def _ideal(one: Measure) -> int | None:
    for words, ideal in ((ALL_OF_IT, 1), (NOTHING_OF_IT, 0), (OF_SAMPLES_OR_MACHINE, None)):
        if any(word in one.name for word in words):
            return ideal
    raise AssertionError(f"{one.name}: say here what an engine that loses nothing has")


def test_rows_of_one_number_have_no_directions() -> None:
    """Nor is the largest of them a class that would be counted twice."""
    tasks = registry.tasks()
    own = {name: set(tasks[name].gates) - set(TENSORS.gates) for name in tasks}
    left = {name: set(TENSORS.gates) - set(tasks[name].gates) for name in tasks}
    assert own["reranking"] == {"rank_agreement"}
    assert left["reranking"] == {"cosine_mean", "cosine_min", "top1_agreement"}
    assert own["classification"] == {"class_agreement", "class_top5_agreement"}
    assert left["classification"] == {"top1_agreement"}
    assert own["token-classification"] == {"label_agreement"}
    assert left["token-classification"] == {"top1_agreement"}
    assert (own["embedding"], left["embedding"]) == ({"recall_at_10"}, set())


def test_tasks_that_can_be_shown() -> None:
    tasks = registry.tasks()
    assert {task.face for task in tasks.values()} <= set(FACES)
    assert [reason_against(task) for task in tasks.values()] == [""] * len(tasks)


def test_a_task_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(TENSORS, name="x" * 99, face="f" * 99)
    reason = reason_against(other)
    assert reason.startswith(f"this optc knows no task {'x' * 80!r}; it knows ")
    assert "text-generation" in reason
    monkeypatch.setattr(shown.registry, "tasks", lambda: {other.name: other})
    reason = reason_against(other)
    assert f"cannot show its task {'x' * 80!r} as {'f' * 80!r}; it shows " in reason
    assert "tensors" in reason
