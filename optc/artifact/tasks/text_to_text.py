"""Text to text: a text becomes another one, judged beside the texts of the source."""

from __future__ import annotations

from optc.artifact.tasks.task import ENCODER, SPEED, TARGET, Measure, Task

#: Name of the task, and of its face.
TEXT_TO_TEXT_NAME = "text-to-text"
#: Source of measures: texts that the model writes.
GENERATED = "generated texts"

TEXT_TO_TEXT = Task(
    name=TEXT_TO_TEXT_NAME,
    face=TEXT_TO_TEXT_NAME,
    reference="the PyTorch model in float32, decoded greedily",
    roles={TARGET: "tensors", ENCODER: "tensors"},
    measures=(
        Measure(
            "token_agreement",
            "tokens of the reference's texts that are the engine's likeliest, given those before",
            GENERATED,
            upper=False,
            ideal=1,
        ),
        Measure(
            "text_agreement",
            "texts whose greedy tokens are the reference's",
            GENERATED,
            upper=False,
            ideal=1,
        ),
        Measure(
            "generation_speedup",
            "texts in one batch, times the speed of the float32 graphs in ONNX Runtime",
            SPEED,
            upper=False,
        ),
    ),
)
