"""Token classification: tokens of texts get labels, judged by them."""

from __future__ import annotations

from optc.artifact.tasks.task import Measure, Task
from optc.artifact.tasks.tensors import TENSORS

#: Name of the task, and of its face.
TOKEN_CLASSIFICATION_NAME = "token-classification"
#: Source of its own measure: labels of tokens.
LABELS = "labels"

TOKEN_CLASSIFICATION = Task(
    name=TOKEN_CLASSIFICATION_NAME,
    face=TOKEN_CLASSIFICATION_NAME,
    reference=TENSORS.reference,
    roles=TENSORS.roles,
    measures=(
        Measure(
            "label_agreement",
            "tokens whose label is that of the reference",
            LABELS,
            upper=False,
            ideal=1,
        ),
        *(one for one in TENSORS.measures if one.name != "top1_agreement"),
    ),
)
