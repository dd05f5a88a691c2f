"""Measures an engine of named tensors: its outputs, and its speed in turns with the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from optc.artifact.tasks.classification import CLASSIFICATION
from optc.artifact.tasks.embedding import EMBEDDING
from optc.artifact.tasks.reranking import RERANKING
from optc.artifact.tasks.task import SPEED, Task
from optc.artifact.tasks.tensors import TENSORS
from optc.proof.gates.in_turns import speedup
from optc.proof.gates.measure import GateResult, judge
from optc.proof.gates.tensors.classes import Classes
from optc.proof.gates.tensors.outputs import OutputFigures
from optc.proof.gates.tensors.ranks import Ranks
from optc.proof.gates.tensors.recall import Recall

Array = npt.NDArray[Any]
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
#: Speed is the median over so many turns, which end early once this takes so long.
_TURNS, _SECONDS = 15, 5.0


def measure_tensors(
    engine: Run,
    reference: Run,
    baseline: Run,
    samples: Sequence[Mapping[str, Array]],
    bounds: Mapping[str, float | None],
    name: str,
    task: Task = TENSORS,
) -> tuple[GateResult, ...]:
    """Verdicts of the task's measures that have a bound or a value, in order.

    Args:
        engine: Runs the engine.
        reference: Gives the outputs to compare with.
        baseline: The float32 graph in ONNX Runtime, whose speed is 1.
        samples: Inputs by name.
        bounds: Of the recipe.
        name: Of the engine.
        task: Whose measures they are.
    """
    figures, recall, classes, ranks = OutputFigures(), Recall(), Classes(), Ranks()
    for sample in samples:
        found, wanted = engine(sample), reference(sample)
        figures.add(found, wanted)
        if task is EMBEDDING:
            recall.add(found, wanted)
        if task is CLASSIFICATION:
            classes.add(found, wanted)
        if task is RERANKING:
            ranks.add(found, wanted)
    values = figures.values()
    values["label_agreement"] = values["top1_agreement"]
    if task is EMBEDDING:
        values["recall_at_10"] = recall.value()
    if task is CLASSIFICATION:
        values |= classes.values()
    if task is RERANKING:
        values["rank_agreement"] = ranks.value()
    if any(one in bounds for one in TENSORS.of(SPEED)):
        values["inference_speedup"] = speedup(
            lambda: engine(samples[0]), lambda: baseline(samples[0]), _TURNS, _SECONDS
        )
    return tuple(_judged(one, values.get(one), bounds, name) for one in task.gates)


def _judged(
    name: str, value: float | None, bounds: Mapping[str, float | None], engine: str
) -> GateResult:
    found = judge(name, value, bounds.get(name), "no output has rows" if name in bounds else "")
    return dataclasses.replace(found, engine=engine)
