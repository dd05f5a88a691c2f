"""Embedding: texts become vectors, judged by their directions and their nearest neighbours."""

from __future__ import annotations

from optc.artifact.tasks.task import Measure, Task
from optc.artifact.tasks.tensors import OUTPUTS, TENSORS

#: Name of the task, and of its face.
EMBEDDING_NAME = "embedding"
#: The output that is judged by neighbours.
EMBEDDINGS = "embeddings"

EMBEDDING = Task(
    name=EMBEDDING_NAME,
    face=EMBEDDING_NAME,
    reference=TENSORS.reference,
    roles=TENSORS.roles,
    measures=(
        Measure(
            "recall_at_10",
            "share of the reference's ten nearest neighbours of a sentence that are the engine's",
            OUTPUTS,
            upper=False,
            ideal=1,
        ),
        *TENSORS.measures,
    ),
)
