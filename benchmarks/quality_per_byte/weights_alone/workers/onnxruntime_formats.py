"""ONNX Runtime's own quantizers of MatMulNBits: ``REQUEST.json`` (`exchange`).

The export of torch has a matrix for the head beside the embedding; both are quantized, and they
count once where they have the same bits, as onnxruntime-genai ties them. MatMulNBits computes in
float32 (accuracy level 0), so that figures are those of the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from exchange import Request, tensor_name
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization import matmul_nbits_quantizer as nbits
from onnxruntime.quantization.calibrate import CalibrationDataReader
from onnxruntime.quantization.neural_compressor import weight_only
from transformers import AutoModelForCausalLM

EMBEDDING = "model.embed_tokens.weight"
#: Options by label: method, bits, block and whether symmetric.
FORMATS: dict[str, tuple[str, int, int, bool]] = {
    "int4 RTN b32": ("rtn", 4, 32, False),
    "int4 HQQ b32": ("hqq", 4, 32, False),
    "int4 k-quant b32": ("k_quant", 4, 32, False),
    "int8 RTN b128": ("rtn", 8, 128, False),
    "int4 RTN b128": ("rtn", 4, 128, False),
    "int4 RTN b32 sym": ("rtn", 4, 32, True),
    "int4 HQQ b64": ("hqq", 4, 64, False),
    "int2 RTN b32": ("rtn", 2, 32, False),
    "int4 GPTQ b32": ("gptq_mse", 4, 32, False),
    "int4 GPTQ b32, no search of scales": ("gptq", 4, 32, False),
}


class Logits(torch.nn.Module):
    """input_ids to logits, without a cache."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """[1, S] to [1, S, V]."""
        logits: torch.Tensor = self.model(input_ids=input_ids, use_cache=False).logits
        return logits


class Calibration(CalibrationDataReader):
    """The calibration windows, one after the other."""

    def __init__(self, windows: Any) -> None:
        self._windows = windows
        self.rewind()

    def rewind(self) -> None:
        """Start again."""
        self._left = iter([{"input_ids": window[None]} for window in self._windows])

    def get_next(self) -> dict[str, Any] | None:
        """The next window."""
        return next(self._left, None)


class Remembering(ort.InferenceSession):
    """Runs the model once a window: GPTQ runs it again for each of its inputs of MatMuls.

    About 9 GB are held for the 128 windows of calibration.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._known: dict[bytes, dict[str, Any]] = {}

    def run(self, output_names: list[str], input_feed: dict[str, Any]) -> list[Any]:
        """The outputs of these names."""
        key = input_feed["input_ids"].tobytes()
        if key not in self._known:
            names = [one.name for one in self.get_outputs()]
            self._known[key] = dict(zip(names, super().run(names, input_feed), strict=True))
        return [self._known[key][name] for name in output_names]


def config(request: Request, method: str, bits: int, block: int, symmetric: bool) -> Any:
    """The quantizer's configuration of a format."""
    form = QuantFormat.QOperator
    if method == "hqq":
        return nbits.HQQWeightOnlyQuantConfig(block_size=block, bits=bits, quant_format=form)
    if method.startswith("gptq"):
        return nbits.GPTQWeightOnlyQuantConfig(
            calibration_data_reader=Calibration(request.calibration),
            block_size=block,
            actorder=False,
            mse=method == "gptq_mse",
        )
    if method == "k_quant":
        return nbits.KQuantWeightOnlyQuantConfig(quant_format=form)
    return nbits.DefaultWeightOnlyQuantConfig(
        block_size=block, is_symmetric=symmetric, bits=bits, quant_format=form
    )


def export(folder: Path, path: Path, length: int) -> None:
    """Write the float32 model; weights of MatMuls have the checkpoint's names."""
    module = Logits(folder)
    ids = torch.zeros(1, length, dtype=torch.int64)
    torch.onnx.export(module, (ids,), path, dynamo=True, opset_version=21, external_data=False)
    model = onnx.load(path)
    weights = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    new_names = {model.graph.input[0].name: "input_ids"}
    model.graph.input[0].name = "input_ids"
    for node in list(model.graph.node):
        # The tied head reads the table through a Transpose, which quantizers do not look behind.
        if node.op_type == "Transpose" and node.input[0] in weights:
            turned = onnx.numpy_helper.from_array(weights[node.input[0]].T.copy(), node.output[0])
            model.graph.initializer.append(turned)
            model.graph.node.remove(node)
    known = {
        tensor.T.contiguous().numpy().tobytes(): name
        for name, tensor in module.model.state_dict().items()
        if tensor.ndim == 2 and name != EMBEDDING
    }
    for one in model.graph.initializer:
        found = known.get(onnx.numpy_helper.to_array(one).tobytes())
        if found is not None:
            new_names[one.name] = one.name = found
    for node in model.graph.node:
        node.input[:] = [new_names.get(name, name) for name in node.input]
    if len(new_names) != len(known) + 1:
        raise RuntimeError(f"{len(new_names) - 1} of {len(known)} matrices are in the export")
    onnx.save(model, path)


def table_of(model: onnx.ModelProto) -> onnx.TensorProto:
    """The embedding: the largest matrix that a Gather reads."""
    read = {node.input[0] for node in model.graph.node if node.op_type == "Gather"}
    tables = [one for one in model.graph.initializer if one.name in read and len(one.dims) == 2]
    return max(tables, key=lambda one: one.dims[0])


def quantized(request: Request, path: Path, label: str) -> onnx.ModelProto:
    """The model by the quantizer; its embedding is the table that the head has."""
    method, bits, block, symmetric = FORMATS[label]
    work = nbits.MatMulNBitsQuantizer(
        onnx.load(path),
        block_size=block,
        is_symmetric=symmetric,
        accuracy_level=0,
        algo_config=config(request, method, bits, block, symmetric),
    )
    work.process()
    model = work.model.model
    head = next(n for n in reversed(model.graph.node) if n.op_type == "MatMulNBits")
    table = dequantized(model, head)
    embedding = table_of(model)
    embedding.CopyFrom(onnx.numpy_helper.from_array(table, embedding.name))
    return model


def dequantized(model: onnx.ModelProto, node: onnx.NodeProto) -> Any:
    """The weight [N, K] of a MatMulNBits: what it makes of the identity, transposed."""
    alone = onnx.NodeProto()
    alone.CopyFrom(node)
    alone.input[0], alone.output[0] = "x", "y"
    width = next(a.i for a in node.attribute if a.name == "K")
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [alone],
        "head",
        [onnx.helper.make_tensor_value_info("x", kind, [width, width])],
        [onnx.helper.make_tensor_value_info("y", kind, None)],
        [one for one in model.graph.initializer if one.name in node.input],
    )
    small = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=10)
    session = ort.InferenceSession(small.SerializeToString())
    return np.ascontiguousarray(session.run(None, {"x": np.eye(width, dtype=np.float32)})[0].T)


def stored(model: onnx.ModelProto) -> dict[str, list[Any]]:
    """Bytes of the tensors by the checkpoint's names; the head's are the embedding's."""
    sizes = {one.name: onnx.numpy_helper.to_array(one).nbytes for one in model.graph.initializer}
    found: dict[str, list[Any]] = {}
    used: set[str] = set()
    for node in model.graph.node:
        if node.op_type != "MatMulNBits":
            continue
        attributes = {a.name: a.i for a in node.attribute}
        parts = [name for name in node.input[1:] if name in sizes]
        used |= set(parts)
        name = tensor_name(parts[0])
        if name is None:
            raise RuntimeError(f"{parts[0]} is of no tensor of the checkpoint")
        name = EMBEDDING if name == "lm_head.weight" else name
        values = attributes["K"] * attributes["N"]
        form = f"{attributes.get('bits', 4)} bits, blocks of {attributes['block_size']}"
        found[name] = [values, sum(sizes[part] for part in parts), form]
    used.add(table_of(model).name)
    # Masks and tables of the rotary embedding are no weights.
    norms = {name for name in sizes if tensor_name(name) is not None and name not in used}
    found["other"] = [0, sum(sizes[name] for name in norms), ""]
    return found


def make(request: Request, path: Path, label: str) -> None:
    """Quantize, run, answer."""
    model = quantized(request, path, label)
    session = ort.InferenceSession(model.SerializeToString(), _options())
    request.write_logits(label, lambda ids: session.run(None, {"input_ids": ids})[0])
    about = {
        "stored": stored(model),
        "version": f"onnxruntime {ort.__version__}",
        "numerics": "weights",
        "note": "its engine with float32 activations and scales; embedding and head are one table",
    }
    request.answer(label, about)


def _options() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return options


def main() -> None:
    """All formats."""
    request = Request.of_command_line()
    weight_only.ort = SimpleNamespace(
        InferenceSession=Remembering, SessionOptions=ort.SessionOptions
    )
    path = request.output / "float32.onnx"
    if not path.exists():
        export(request.model, path, request.heldout.shape[1])
    formats: list[tuple[str, Callable[[str], None]]] = [
        (label, partial(make, request, path)) for label in FORMATS
    ]
    request.make_all(formats)


if __name__ == "__main__":
    main()
