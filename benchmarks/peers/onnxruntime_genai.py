"""optc's ONNX Runtime backend against onnxruntime-genai, both on the very same int4 weights.

    python -m benchmarks.peers.onnxruntime_genai MODEL_FOLDER [--workdir DIR] [--rounds 5]
        [--text JSONL] [--json FILE]

Compiles the model with symmetric int4 groups of 32, head and embedding included, converts it with
onnxruntime-genai's own builder, and gives that model optc's weights and scales: so the two differ
in the graph and in what drives it, and in nothing else. Prefill of 512 tokens and decoding of
one sequence, in turns; medians over turns. With ``--text`` (a trained model) both perplexities,
which shows that the weights are the same. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.peers import conversion, environments, measuring, subjects, variants
from benchmarks.peers.__main__ import print_table, random_prompts, text_windows

GENAI = variants.Variant("onnxruntime-genai", "int4", 4, "accuracy_level 4, blocks of 32")
_SETTINGS = tuple(
    f"quantize-weights.{o}" for o in ("symmetric=true", "group_scales=float", "head_bits=4")
)
_ORDER = ("qkv", "o", "gate_up", "down")


def compile_own(model: Path, root: Path) -> Path:
    """optc's artifact, compiled once."""
    output = root / "models" / model.name / "optc-onnxruntime-int4"
    if not output.exists():
        command = [sys.executable, "-m", "optc", "compile", str(model), "--recipe", "int4-fast",
                   "--backend", "onnxruntime", "--no-gates", "-o", str(output)]  # fmt: skip
        for setting in _SETTINGS:
            command += ["--set", setting]
        subprocess.run(command, check=True, stdout=sys.stderr)
    return output


def with_weights_of(own: Path, genai: Path, output: Path) -> Path:
    """A copy of onnxruntime-genai's model whose quantized weights are those of optc's engine.

    Both list their matmuls layer by layer; optc's gate and up are one, rows of the gate first.
    """
    if output.exists():
        return output
    engine = next(own.rglob("model.onnx"))
    ours = iter(_matmuls(onnx.load(engine)))
    target = onnx.load(genai / "model.onnx")
    theirs = _matmuls(target)
    tensors = {t.name: t for t in target.graph.initializer}
    layers = (len(theirs) - 1) // 5
    for layer in range(layers):
        found = dict(zip(_ORDER, (next(ours) for _ in _ORDER), strict=True))
        gate, up = zip(*(np.split(part, 2) for part in found["gate_up"].values()), strict=True)
        names = ("values", "scales")
        parts = [found["qkv"], found["o"], dict(zip(names, gate, strict=True)),
                 dict(zip(names, up, strict=True)), found["down"]]  # fmt: skip
        for new, old in zip(parts, theirs[5 * layer : 5 * layer + 5], strict=True):
            _replace(tensors, old, new)
    _replace(tensors, theirs[-1], next(ours))
    output.mkdir()
    for file in genai.iterdir():
        if not file.name.startswith("model.onnx") and file.is_file():
            shutil.copy(file, output)
    onnx.save(target, output / "model.onnx", save_as_external_data=True,
              location="model.onnx.data")  # fmt: skip
    return output


def _matmuls(model: onnx.ModelProto) -> list[dict[str, Any]]:
    """Values and scales of every MatMulNBits in order, and their names."""
    tensors = {t.name: t for t in model.graph.initializer}
    return [
        {
            "values": numpy_helper.to_array(tensors[node.input[1]]),
            "scales": numpy_helper.to_array(tensors[node.input[2]]),
        }
        if "seqlens_k" in {value.name for value in model.graph.input}
        else {"values": node.input[1], "scales": node.input[2]}
        for node in model.graph.node
        if node.op_type == "MatMulNBits"
    ]


def _replace(
    tensors: dict[str, onnx.TensorProto], old: dict[str, str], new: dict[str, Any]
) -> None:
    for part, name in old.items():
        shape = tuple(tensors[name].dims)
        if math.prod(shape) != new[part].size:
            raise SystemExit(f"{name}: {shape} is not the shape {new[part].shape}")
        array = np.ascontiguousarray(new[part].reshape(shape))
        tensors[name].CopyFrom(numpy_helper.from_array(array, name))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers.onnxruntime_genai", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--workdir", type=Path, default=Path(".peers"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--context", type=int, default=128, help="tokens before decoding")
    parser.add_argument("--new", type=int, default=128, help="tokens decoded")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--text", type=Path)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each of the two."""
    root, here = args.workdir.resolve(), Path(sys.executable).parent
    model = args.model.resolve()
    binaries = environments.ensure(GENAI.peer, root)
    own = compile_own(model, root)
    converted = conversion.convert(GENAI, binaries, subjects.folder_subject(model), root).path
    same = with_weights_of(own, converted, converted.with_name("onnxruntime-genai-same-weights"))
    optc = variants.Variant("optc", "onnxruntime int4", 4, "")
    commands = {
        "optc": variants.worker_command(optc, here, own, args.threads),
        "onnxruntime-genai": variants.worker_command(GENAI, binaries, same, args.threads),
    }
    plan = measuring.Plan(args.prompt, args.context, args.new, batches=(1,))
    prompts = random_prompts(model, args.prompt)
    windows = text_windows(args.text, model, args.prompt, 20) if args.text else []
    with ExitStack() as stack:
        workers = {n: stack.enter_context(measuring.started(c)) for n, c in commands.items()}
        samples = {name: measuring.Samples() for name in workers}
        unused = [(worker, measuring.Samples()) for worker in workers.values()]
        measuring.measure_round(unused, plan.warm_up().columns(prompts))
        measured = [(worker, samples[name]) for name, worker in workers.items()]
        for _ in range(args.rounds):
            measuring.measure_round(measured, plan.columns(prompts))
        return [row(n, w, samples[n], windows) for n, w in workers.items()]


def row(
    name: str, worker: measuring.Worker, samples: measuring.Samples, windows: list[list[int]]
) -> dict[str, Any]:
    """One row of the table."""
    found: dict[str, Any] = {"engine": name, "version": worker.about["version"]}
    found |= {column: round(samples.median(column), 1) for column in samples.rates}
    found["turns"] = {c: [round(x, 1) for x in r] for c, r in samples.rates.items()}
    if windows:
        score = worker.ask("perplexity", windows=windows)
        found["perplexity"] = round(math.exp(score["nll"] / score["tokens"]), 3)
    return found


def main() -> None:
    """Measure, print, store."""
    args = arguments()
    rows = measure(args)
    print_table(rows)
    for column in ("prefill", "decode 1"):
        print(f"{column}: {rows[0][column] / rows[1][column]:.2f} times onnxruntime-genai")
    if args.json:
        args.json.write_text(json.dumps({"model": args.model.name, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
