"""Tensors in, tensors out: any model, judged by its outputs against those of its source."""

from __future__ import annotations

from optc.artifact.tasks.task import SPEED, Measure, Task

#: Name of the task, and of its face.
TENSORS_NAME = "tensors"
#: Source of measures: outputs for sampled inputs.
OUTPUTS = "outputs"

TENSORS = Task(
    name=TENSORS_NAME,
    face=TENSORS_NAME,
    reference="the PyTorch module where one was given, else the graph in float32 in ONNX Runtime",
    roles={"target": "tensors"},
    measures=(
        Measure(
            "output_error",
            "largest difference of an output, over the largest value of that output",
            OUTPUTS,
            upper=True,
            ideal=0,
        ),
        Measure(
            "cosine_mean",
            "mean cosine of rows of float outputs (last axis) with the reference's",
            OUTPUTS,
            upper=False,
            ideal=1,
        ),
        Measure(
            "cosine_min",
            "least cosine of a row of a float output with the reference's",
            OUTPUTS,
            upper=False,
            ideal=1,
        ),
        Measure(
            "sqnr_db",
            "power of float outputs over that of their error, decibels; 200 where there is none",
            OUTPUTS,
            upper=False,
        ),
        Measure(
            "top1_agreement",
            "rows of float outputs whose largest value stands at the same place",
            OUTPUTS,
            upper=False,
            ideal=1,
        ),
        Measure(
            "inference_speedup",
            "inference, times the speed of the float32 graph in ONNX Runtime",
            SPEED,
            upper=False,
        ),
    ),
)
