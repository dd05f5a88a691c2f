"""Classification: images or texts get classes, judged by the first ones and the scores' error."""

from __future__ import annotations

from optc.artifact.tasks.task import Measure, Task
from optc.artifact.tasks.tensors import TENSORS

#: Name of the task, and of its face.
CLASSIFICATION_NAME = "classification"
#: Source of its own measures: classes of images or texts.
CLASSES = "classes"

CLASSIFICATION = Task(
    name=CLASSIFICATION_NAME,
    face=CLASSIFICATION_NAME,
    reference=TENSORS.reference,
    roles=TENSORS.roles,
    measures=(
        Measure(
            "class_agreement",
            "images or texts whose first class is that of the reference",
            CLASSES,
            upper=False,
            ideal=1,
        ),
        Measure(
            "class_top5_agreement",
            "images or texts whose first class of the reference is among the engine's first five",
            CLASSES,
            upper=False,
            ideal=1,
        ),
        *(one for one in TENSORS.measures if one.name != "top1_agreement"),
    ),
)
