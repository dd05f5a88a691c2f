"""An artifact of a task that this optc does not have."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import GateEntry
from optc.artifact.tasks.task import SPEED, Measure, Task
from optc.artifact.writer import ArtifactWriter
from optc.runtime.executable.tensors_interface import DimRange, TensorsInterface, TensorSpec
from tests.artifact.toy import DATA, toy_engine, toy_manifest, write_files

LABELS = Task(
    name="image-classification",
    face="labels",
    reference="the module itself, float32",
    roles={"target": "tensors"},
    measures=(
        Measure(
            "top1_labels", "images with the same likeliest label", "images", upper=False, ideal=1
        ),
        Measure("image_speedup", "times the speed of float32", SPEED, upper=False),
    ),
)
IMAGES = TensorsInterface(
    inputs=(TensorSpec("pixels", "int64", ("batch", 1024)),),
    outputs=(TensorSpec("logits", "float32", ("batch", 10)),),
    symbols={"batch": DimRange(1, 8)},
)
#: What engines of named tensors of the backend say besides.
PACKED = {
    "ids": "pixels",
    "mask": "",
    "types": "",
    "vocabulary": 1,
    "type_count": 0,
    "position_count": 0,
    "by_token": [],
    "max_rows": 1024,
    "max_sequences": 1,
    "layers": [],
}


def write_labels(output: Path, task: Task = LABELS) -> Artifact:
    """An artifact of an engine of tensors."""
    with ArtifactWriter(output) as writer:
        write_files(writer)
        manifest = replace(
            toy_manifest(writer.hashed_files()),
            engines=(replace(toy_engine(), interface=IMAGES, data={**DATA, "packed": PACKED}),),
            task=task,
            gates=(GateEntry("top1_labels", 0.99, True),),
        )
        gate = {"name": "top1_labels", "value": 0.995, "bound": 0.99, "passed": True}
        gates = [{**gate, "measured_on": "engine", "engine": "target"}]
        return writer.commit(manifest, {"seconds": 1.5, "gates": gates, "passes": []})
