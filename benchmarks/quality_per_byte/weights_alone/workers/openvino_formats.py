"""OpenVINO through NNCF: ``REQUEST.json`` (`exchange`).

The model runs in OpenVINO with float32 activations and without dynamic quantization, so that its
figures are those of the weights.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import openvino as ov
from exchange import Request, tensor_name

FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
INT8, ASYM, SYM = (
    nncf.CompressWeightsMode.INT8_ASYM,
    nncf.CompressWeightsMode.INT4_ASYM,
    nncf.CompressWeightsMode.INT4_SYM,
)
#: Options by label; those with ``dataset`` are given the calibration windows.
FORMATS: dict[str, dict[str, Any]] = {
    "int8 asym": {"mode": INT8},
    "int4 asym g32": {"mode": ASYM, "group_size": 32},
    "int4 asym g64": {"mode": ASYM, "group_size": 64},
    "int4 asym g128": {"mode": ASYM, "group_size": 128},
    "int4 sym g64": {"mode": SYM, "group_size": 64},
    "int4 asym g32 AWQ, scale estimation": {
        "mode": ASYM, "group_size": 32, "awq": True, "scale_estimation": True},
    "int4 asym g64 AWQ": {"mode": ASYM, "group_size": 64, "awq": True},
    "int4 asym g64 scale estimation": {"mode": ASYM, "group_size": 64, "scale_estimation": True},
    "int4 asym g32 scale estimation, all layers": {
        "mode": ASYM, "group_size": 32, "scale_estimation": True, "all_layers": True},
    "int4 asym g32 GPTQ": {"mode": ASYM, "group_size": 32, "gptq": True},
    "int4 asym g64 GPTQ": {"mode": ASYM, "group_size": 64, "gptq": True},
    "int4 asym g32 scale estimation, GPTQ": {
        "mode": ASYM, "group_size": 32, "scale_estimation": True, "gptq": True},
}  # fmt: skip
DATA_AWARE = ("awq", "scale_estimation", "gptq")


def inputs(ids: Any) -> dict[str, Any]:
    """The inputs of the exported model for ids [1, S]."""
    positions = np.arange(ids.shape[1], dtype=np.int64)[None]
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": positions}


def stored(model: ov.Model) -> dict[str, list[Any]]:
    """Bytes of every constant by the tensor that it belongs to; the rest is ``other``."""
    found: dict[str, list[Any]] = {}
    for node in model.get_ops():
        if node.get_type_name() != "Constant" or node.get_output_size() != 1:
            continue
        kind, values = node.get_element_type(), int(np.prod(node.get_output_shape(0)))
        size = -(-values * kind.bitwidth // 8)
        if kind.is_integral() and kind.bitwidth >= 32:
            continue  # shapes and axes
        name = tensor_name(node.get_friendly_name()) or "other"
        entry = found.setdefault(name, [0, 0, ""])
        entry[1] += size
        if values > entry[0]:
            entry[0], entry[2] = values, kind.get_type_name()
    return found


def make(request: Request, source: Path, label: str) -> None:
    """Compress, run, answer."""
    core = ov.Core()
    model = core.read_model(source)
    options = dict(FORMATS[label])
    if any(options.get(name) for name in DATA_AWARE):
        samples = [inputs(window[None]) for window in request.calibration]
        options |= {"dataset": nncf.Dataset(samples), "subset_size": len(samples)}
    model = nncf.compress_weights(model, **options)
    compiled = core.compile_model(model, "CPU", FLOAT32)
    request.write_logits(label, lambda ids: compiled(inputs(ids))[0])
    about = {
        "stored": stored(model),
        "version": f"nncf {nncf.__version__}, openvino {ov.__version__.split('-')[0]}",
        "numerics": "weights",
        "note": "its engine with float32 activations",
    }
    request.answer(label, about)


def main() -> None:
    """All formats."""
    request = Request.of_command_line()
    exported = request.output / "float32"
    if not (exported / "openvino_model.xml").exists():
        command = ["export", "openvino", "--model", str(request.model), "--task",
                   "text-generation", "--weight-format", "fp32", str(exported)]  # fmt: skip
        subprocess.run([Path(sys.executable).with_name("optimum-cli"), *command], check=True)
    source = exported / "openvino_model.xml"
    formats: list[tuple[str, Callable[[str], None]]] = [
        (label, partial(make, request, source)) for label in FORMATS
    ]
    request.make_all(formats)


if __name__ == "__main__":
    main()
