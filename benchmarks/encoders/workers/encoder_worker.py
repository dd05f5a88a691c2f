"""One engine of a sentence encoder: ``KIND PATH THREADS``, requests by `serving`.

Runs in the engine's own environment. Operations, on token ids, one list a text:

    embed  {"texts": [[...], ...], "file": path}  -> {"rows": count}; float32 [texts, D] in the file
    time   {"texts": [[...], ...], "calls": n}    -> {"seconds": s} for n calls with all texts
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "peers" / "workers"))

from serving import serve, take_stdout

#: Texts of a call of ``embed``.
_BATCH = 32


def padded(texts: list[list[int]]) -> dict[str, Any]:
    """Ids, mask and types [texts, tokens], padded behind the tokens."""
    longest = max(map(len, texts))
    ids = np.zeros((len(texts), longest), np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    mask = np.arange(longest) < np.array([len(text) for text in texts])[:, None]
    return {
        "input_ids": ids,
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": np.zeros_like(ids),
    }


def open_optc(path: str, threads: int) -> Any:
    """An artifact."""
    import optc

    engine = optc.load_tensors(path, threads=threads)
    names = [one.name for one in engine.inputs]
    return lambda given: engine.run({name: given[name] for name in names})["embeddings"]


def open_onnxruntime(path: str, threads: int) -> Any:
    """A model of ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    return lambda given: session.run(["embeddings"], {name: given[name] for name in names})[0]


def open_openvino(path: str, threads: int, precision: str) -> Any:
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


def open_torch(path: str, threads: int, dtype: str) -> Any:
    """The folder's module, compiled for any batch and length; pooled as it says."""
    import torch

    from optc.importer.tensors.encoder import text_module

    torch.set_num_threads(threads)
    plain, count = text_module(Path(path))
    module = torch.compile(plain, dynamic=True)
    narrow = dtype == "bfloat16"

    def run(given: dict[str, Any]) -> Any:
        tensors = [torch.from_numpy(array) for array in [*given.values()][:count]]
        with (
            torch.inference_mode(),
            torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow),
        ):
            return module(*tensors)["embeddings"].float().numpy()

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

    def embed(request: dict[str, Any]) -> dict[str, Any]:
        texts = request["texts"]
        parts = [run(padded(texts[i : i + _BATCH])) for i in range(0, len(texts), _BATCH)]
        np.save(request["file"], np.concatenate(parts).astype(np.float32))
        return {"rows": len(texts)}

    def timed(request: dict[str, Any]) -> dict[str, Any]:
        given = padded(request["texts"])
        begun = time.perf_counter()
        for _ in range(request["calls"]):
            run(given)
        return {"seconds": time.perf_counter() - begun}

    serve({"embed": embed, "time": timed}, {"name": kind}, answers)


if __name__ == "__main__":
    main()
