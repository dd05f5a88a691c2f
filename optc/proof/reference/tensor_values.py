"""Values inside of a model of named tensors, seen while ONNX Runtime runs it in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from optc.proof.reference.tensor_samples import Sample
from optc.system.hardware.target import usable_threads

Array = npt.NDArray[Any]
#: Bytes of weights that go into one message, which holds 2 GB at most.
_MESSAGE = 1 << 30


class ValueRun:
    """A model whose inner values are outputs, in ONNX Runtime on the CPU.

    Args:
        model: It is not changed.
        values: Float values of its main graph, inputs among them.
    """

    def __init__(self, model: ir.Model, values: Iterable[ir.Value]) -> None:
        inputs = {value.name for value in model.graph.inputs}
        wanted = dict.fromkeys(str(value.name) for value in values)
        self._inputs = [name for name in wanted if name in inputs]
        self._names = [name for name in wanted if name not in inputs]
        shown = model.clone()
        known = {str(v.name): v for node in shown.graph for v in node.outputs}
        present = {value.name for value in shown.graph.outputs}
        for name in self._names:
            if name not in present:
                value = known[name]
                value.type = value.type or ir.TensorType(ir.DataType.FLOAT)
                shown.graph.outputs.append(value)
        self._session = _session(shown)

    def over(self, samples: Sequence[Sample], see: Callable[[str, Array], None]) -> None:
        """Run over ``samples``, and show every value of each by its name."""
        for sample in samples:
            for name in self._inputs:
                see(name, sample[name])
            if self._names:
                found = self._session.run(self._names, dict(sample))
                for name, array in zip(self._names, found, strict=True):
                    see(name, array)


def _session(model: ir.Model) -> Any:
    """A session in ONNX Runtime; its weights go through a file where one message cannot hold
    them."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_threads()
    options.log_severity_level = 3  # a declared shape that is wrong is the model's own
    providers = ["CPUExecutionProvider"]
    weights = (value.const_value for value in model.graph.initializers.values())
    if sum(one.nbytes for one in weights if one is not None) <= _MESSAGE:
        _take_in(model)
        data = ir.to_proto(model).SerializeToString()
        return onnxruntime.InferenceSession(data, options, providers)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        ir.save(model, file, external_data="weights")
        return onnxruntime.InferenceSession(str(file), options, providers)


def _take_in(model: ir.Model) -> None:
    """Read weights that lie beside a file, which nobody finds from here; those of the file's own
    model stay as they are, and may be in use."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = ir.tensor(value.const_value.numpy().copy(), name=value.name)
