"""An imported model of named tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from optc.artifact.tasks.task import Task
from optc.artifact.tasks.tensors import TENSORS
from optc.errors import UnsupportedError
from optc.runtime.executable.tensors_interface import DType, TensorsInterface
from optc.runtime.tensors.images import ImageInput
from optc.runtime.tensors.texts import TextScores

Array = npt.NDArray[Any]
#: Tensors by name.
Tensors = Mapping[str, Array]
#: Names of types by ONNX's.
DTYPES: Mapping[ir.DataType, DType] = {
    ir.DataType.BOOL: "bool",
    ir.DataType.INT8: "int8",
    ir.DataType.INT16: "int16",
    ir.DataType.INT32: "int32",
    ir.DataType.INT64: "int64",
    ir.DataType.UINT8: "uint8",
    ir.DataType.UINT16: "uint16",
    ir.DataType.UINT32: "uint32",
    ir.DataType.UINT64: "uint64",
    ir.DataType.FLOAT16: "float16",
    ir.DataType.FLOAT: "float32",
    ir.DataType.DOUBLE: "float64",
}


@dataclass(frozen=True)
class ImportedTensors:
    """A model of named tensors.

    Attributes:
        model: The graph, in the form `optc.ir.forms.batched.BatchedTensors`.
        interface: Its inputs and outputs.
        name: Of the model.
        digest: sha256 in hex of graph and weights.
        samples: Inputs to judge engines by, if the source brings some.
        reference: Computes the outputs as the source does; None where only the graph is there.
        warnings: What the user should know.
        task: What the model is for.
        tokenizer: JSON of the tokenizer that makes its inputs of texts, truncated and padded; empty
            where there is none.
        images: How images become its input; None where it takes none.
        scores: What its scores of texts are; None where it gives none.
    """

    model: ir.Model
    interface: TensorsInterface
    name: str
    digest: str
    samples: tuple[Tensors, ...] = ()
    reference: Callable[[Tensors], Tensors] | None = None
    warnings: tuple[str, ...] = ()
    task: Task = TENSORS
    tokenizer: str = ""
    padding: str = ""
    images: ImageInput | None = None
    scores: TextScores | None = None

    def with_texts(
        self, task: Task, tokenizer: str, scores: TextScores | None = None
    ) -> ImportedTensors:
        """The model with a tokenizer of its inputs, for a task over texts."""
        return replace(self, task=task, tokenizer=tokenizer, scores=scores, samples=())

    def with_images(self, task: Task, images: ImageInput) -> ImportedTensors:
        """The model with its images, for a task over them."""
        return replace(self, task=task, images=images)


def dtype_of(value: ir.Value) -> DType:
    """The type of an input's or output's elements; NumPy has no bfloat16.

    Raises:
        UnsupportedError: No array has it.
    """
    tensor = isinstance(value.type, ir.TensorType)
    if not tensor or value.dtype is None or value.dtype not in DTYPES:
        kind = f"of {value.dtype.name}" if tensor and value.dtype is not None else "no tensor"
        raise UnsupportedError(
            f"it is {kind}",
            where=f"tensor {value.name}",
            hint="inputs and outputs are tensors of numbers",
        )
    return DTYPES[value.dtype]


def digest_of(model: ir.Model) -> str:
    """sha256 in hex of a graph and its weights, which are read one by one."""
    found = hashlib.sha256()
    shell = model.clone()
    for name in sorted(shell.graph.initializers):
        tensor = shell.graph.initializers.pop(name).const_value
        if tensor is not None:
            found.update(f"{name} {tensor.dtype.name} {list(tensor.shape)}\n".encode())
            if isinstance(tensor, ir.StringTensor):
                found.update(repr(list(tensor.string_data())).encode())
            else:
                found.update(tensor.tobytes())
    found.update(ir.to_proto(shell).SerializeToString(deterministic=True))
    return found.hexdigest()
