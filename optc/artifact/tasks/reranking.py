"""Reranking: a query and texts become scores, judged by the order that they give."""

from __future__ import annotations

from optc.artifact.tasks.task import Measure, Task
from optc.artifact.tasks.tensors import TENSORS

#: Name of the task, and of its face.
RERANKING_NAME = "reranking"
#: Source of its own measure: scores of texts for one query.
SCORES = "scores"
#: What says nothing of rows of one number.
_OF_DIRECTIONS = ("cosine_mean", "cosine_min", "top1_agreement")

RERANKING = Task(
    name=RERANKING_NAME,
    face=RERANKING_NAME,
    reference=TENSORS.reference,
    roles=TENSORS.roles,
    measures=(
        Measure(
            "rank_agreement",
            "pairs of texts for one query that stand in the reference's order",
            SCORES,
            upper=False,
            ideal=1,
        ),
        *(one for one in TENSORS.measures if one.name not in _OF_DIRECTIONS),
    ),
)
