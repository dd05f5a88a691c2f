"""Engines of a model of named tensors, each as a function from arrays by name to the first output.

Imported by workers, which run in the engines' own environments.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Run = Callable[[dict[str, Any]], Any]


def open_optc(path: str, threads: int) -> Run:
    """An artifact."""
    import optc

    engine = optc.load_tensors(path, threads=threads)
    names, found = [one.name for one in engine.inputs], engine.outputs[0].name
    return lambda given: engine.run({name: given[name] for name in names})[found]


def open_onnxruntime(path: str, threads: int) -> Run:
    """A model of ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names, found = [one.name for one in session.get_inputs()], session.get_outputs()[0].name
    return lambda given: session.run([found], {name: given[name] for name in names})[0]


def open_openvino(path: str, threads: int, precision: str) -> Run:
    """The same model, or OpenVINO's own, in a precision of its plugin."""
    import openvino

    core = openvino.Core()
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": precision,
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = core.compile_model(core.read_model(path), "CPU", options)
    names = [one.get_any_name() for one in compiled.inputs]
    request = compiled.create_infer_request()

    def run(given: dict[str, Any]) -> Any:
        request.infer({name: given[name] for name in names})
        return request.get_output_tensor(0).data.copy()

    return run


def compiled_torch(call: Callable[[dict[str, Any]], Any], threads: int, dtype: str) -> Run:
    """A call of a module that torch.compile made, in a type."""
    import torch

    torch.set_num_threads(threads)
    narrow = dtype == "bfloat16"

    def run(given: dict[str, Any]) -> Any:
        with (
            torch.inference_mode(),
            torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow),
        ):
            return call(given).float().numpy()

    return run


def open_engine(kind: str, path: str, threads: int, module: Callable[[str], Any]) -> Run:
    """An engine of a kind; ``module`` gives torch's call for a folder."""
    if kind.startswith("torch-"):
        dtype = {"f32": "float32", "bf16": "bfloat16"}[kind.removeprefix("torch-")]
        return compiled_torch(module(path), threads, dtype)
    if kind.startswith("openvino-"):
        return open_openvino(path, threads, kind.removeprefix("openvino-"))
    return {"optc": open_optc, "onnxruntime": open_onnxruntime}[kind](path, threads)


def timed(run: Run, given: dict[str, Any], calls: int) -> dict[str, float]:
    """Seconds of so many calls."""
    begun = time.perf_counter()
    for _ in range(calls):
        run(given)
    return {"seconds": time.perf_counter() - begun}
