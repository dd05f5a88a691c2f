"""One engine of a model of images: ``KIND PATH THREADS``, requests by `serving`.

Runs in the engine's own environment. Operations, on float32 images [N, C, H, W] in a file:

    run   {"images": path, "file": path}  -> {"rows": N}; the first output in the file
    time  {"images": path, "calls": n}    -> {"seconds": s} for n calls with all images
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "peers" / "workers"))

from serving import serve, take_stdout

#: Images of a call of ``run``.
_BATCH = 8


def open_optc(path: str, threads: int) -> Any:
    """An artifact."""
    import optc

    engine = optc.load_tensors(path, threads=threads)
    name = engine.outputs[0].name
    return lambda images: engine(images)[name]


def open_onnxruntime(path: str, threads: int) -> Any:
    """A model of ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given, found = session.get_inputs()[0].name, session.get_outputs()[0].name
    return lambda images: session.run([found], {given: images})[0]


def open_openvino(path: str, threads: int, precision: str) -> Any:
    """The same model, or OpenVINO's own, in a precision of its plugin."""
    import openvino

    core = openvino.Core()
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": precision,
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = core.compile_model(core.read_model(path), "CPU", options).create_infer_request()

    def run(images: Any) -> Any:
        request.infer([images])
        return request.get_output_tensor(0).data.copy()

    return run


def open_torch(path: str, threads: int, dtype: str) -> Any:
    """The folder's module, compiled for each batch."""
    import torch

    from optc.importer.json_file import read_object
    from optc.importer.tensors.encoder import load_model

    torch.set_num_threads(threads)
    folder = Path(path)
    module = torch.compile(load_model(folder, read_object(folder / "config.json")))
    narrow = dtype == "bfloat16"

    def run(images: Any) -> Any:
        with (
            torch.inference_mode(),
            torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow),
        ):
            return module(pixel_values=torch.from_numpy(images))[0].float().numpy()

    return run


KINDS: dict[str, Any] = {
    "optc": open_optc,
    "onnxruntime": open_onnxruntime,
    "openvino-f32": lambda path, threads: open_openvino(path, threads, "f32"),
    "openvino-bf16": lambda path, threads: open_openvino(path, threads, "bf16"),
    "torch-f32": lambda path, threads: open_torch(path, threads, "float32"),
    "torch-bf16": lambda path, threads: open_torch(path, threads, "bfloat16"),
}


def main() -> None:
    """Open the engine and answer."""
    kind, path, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    answers = take_stdout()
    run = KINDS[kind](path, threads)

    def whole(request: dict[str, Any]) -> dict[str, Any]:
        images = np.load(request["images"])
        parts = [run(images[i : i + _BATCH]) for i in range(0, len(images), _BATCH)]
        np.save(request["file"], np.concatenate(parts).astype(np.float32))
        return {"rows": len(images)}

    def timed(request: dict[str, Any]) -> dict[str, Any]:
        images = np.load(request["images"])
        run(images)  # of another batch than before, what is compiled is not timed
        begun = time.perf_counter()
        for _ in range(request["calls"]):
            run(images)
        return {"seconds": time.perf_counter() - begun}

    serve({"run": whole, "time": timed}, {"name": kind}, answers)


if __name__ == "__main__":
    main()
