"""Figures of an engine of named tensors by its task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from optc.artifact.tasks.classification import CLASSIFICATION
from optc.artifact.tasks.embedding import EMBEDDING
from optc.artifact.tasks.reranking import RERANKING
from optc.artifact.tasks.task import Task
from optc.artifact.tasks.tensors import TENSORS
from optc.artifact.tasks.token_classification import TOKEN_CLASSIFICATION
from optc.proof.gates.measure import GateResult
from optc.proof.gates.tensors.measure import measure_tensors

Arrays = Mapping[str, np.ndarray]
ROWS = {"logits": np.array([[3.0, 1, 2], [0, 4, 1], [2, 0, 1], [5, 6, 7]], np.float32)}
SWAPPED = {"logits": ROWS["logits"][:, [1, 0, 2]]}  # which has another first class in three rows


def measured(
    found: Arrays, task: Task = TENSORS, wanted: Arrays = ROWS, **bounds: float | None
) -> dict[str, GateResult]:
    sample = {"x": np.zeros(1)}
    results = measure_tensors(
        lambda _: found, lambda _: wanted, lambda _: wanted, [sample, sample], bounds, "one", task
    )
    assert [one.name for one in results] == list(task.gates)
    assert {one.engine for one in results} == {"one"}
    return {one.name: one for one in results}


@pytest.mark.parametrize(
    ("task", "name", "lost"),
    [
        (TENSORS, "top1_agreement", 1 / 4),
        (TOKEN_CLASSIFICATION, "label_agreement", 1 / 4),
        (CLASSIFICATION, "class_agreement", 1 / 4),
        (CLASSIFICATION, "class_top5_agreement", 1),
    ],
)
def test_classes_of_rows(task: Task, name: str, lost: float) -> None:
    assert measured(ROWS, task)[name].value == 1
    assert measured(SWAPPED, task)[name].value == lost


def test_neighbours_of_embeddings() -> None:
    angles = np.linspace(0, 3, 24)
    wanted = {"embeddings": np.stack([np.cos(angles), np.sin(angles)], 1)}
    mixed = {"embeddings": wanted["embeddings"][np.random.default_rng(0).permutation(24)]}
    assert measured(wanted, EMBEDDING, wanted)["recall_at_10"].value == 1
    found = measured(mixed, EMBEDDING, wanted)["recall_at_10"].value
    assert found is not None
    assert found < 0.9


def test_pairs_of_scores() -> None:
    wanted = {"logits": np.array([[3.0], [1.0], [2.0]], np.float32)}
    other = {"logits": np.array([[3.0], [2.5], [2.0]], np.float32)}
    assert measured(wanted, RERANKING, wanted)["rank_agreement"].value == 1
    assert measured(other, RERANKING, wanted)["rank_agreement"].value == pytest.approx(2 / 3)


def test_speed_is_measured_where_it_has_a_bound() -> None:
    calls = {"engine": 0, "reference": 0, "baseline": 0}

    def run(name: str) -> Any:
        def count(_: Arrays) -> Arrays:
            calls[name] += 1
            return ROWS

        return count

    def measure(**bounds: float) -> float | None:
        three = (run("engine"), run("reference"), run("baseline"))
        return measure_tensors(*three, [{"x": np.zeros(1)}], bounds, "one")[-1].value

    assert measure(output_error=1.0) is None
    assert calls == {"engine": 1, "reference": 1, "baseline": 0}
    speed = measure(inference_speedup=0.0)
    assert speed is not None
    assert speed > 0
    assert calls == {"engine": 17, "reference": 2, "baseline": 15}


def test_bounds_are_judged_and_what_has_no_rows_is_told() -> None:
    found = measured(SWAPPED, top1_agreement=0.5, output_error=0.5)
    assert not found["top1_agreement"].passed
    assert found["top1_agreement"].reason == "0.25 is below the bound 0.5"
    numbers = {"y": np.array([1, 2])}
    found = measured(numbers, TENSORS, numbers, top1_agreement=0.5)
    assert found["top1_agreement"].value is None
    assert found["top1_agreement"].reason == "no output has rows"
    assert found["cosine_min"].reason == "", "nobody asked"
