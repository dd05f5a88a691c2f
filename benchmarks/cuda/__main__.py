"""Measure a CUDA artifact on this machine's GPU, beside its peaks and torch.compile, in one run.

    python -m benchmarks.cuda ARTIFACT [--model FOLDER] [--context 512] [--concurrency 1,8,32]
        [--rounds 20] [--json FILE]

Steps are timed as CUDA graphs (optc) and kernel by kernel (optc without graphs), in turns.
Peaks of the GPU (read bandwidth, bf16, int8, fp32) are measured through PyTorch. Steps of the
engine and of the model under torch.compile (``--model``, bfloat16) are timed in turns; the fastest
and the median of the rounds are stated, with inputs from and results to host memory. MBU and MFU
are by the fastest. Without a GPU, or without PyTorch for it, it ends with status 3 and the reason.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.cuda.steps import ENGINES, engine_timers, fitting, utilization
from optc.artifact.artifact import Artifact
from optc.backends.tvm_cuda import BACKEND
from optc.backends.tvm_cuda.loaded.executable import CudaExecutable
from optc.backends.tvm_cuda.loaded.loader import load_engine
from optc.errors import InputError, OptcError, UnavailableError
from optc.proof.bench.profile import Shape
from optc.proof.roofline.costs import StepCosts
from optc.system.hardware.machine import this_machine

#: Steps before those that count.
WARM_UP = 5


def require_gpu() -> None:
    """Check for a device and PyTorch.

    Raises:
        UnavailableError: One is missing; says why.
    """
    machine = this_machine()
    if not machine.sm:
        raise UnavailableError(
            f"it measures a GPU: {machine.no_cuda}",
            where="benchmarks.cuda",
            hint="run it on a machine with an NVIDIA GPU",
        )
    try:
        import torch
    except ImportError as error:
        raise UnavailableError("PyTorch is not installed", where="benchmarks.cuda") from error
    if not torch.cuda.is_available():
        raise UnavailableError(
            f"PyTorch {torch.__version__} sees no GPU",
            where="benchmarks.cuda",
            hint="install PyTorch for CUDA: it measures the peaks and is what is compared with",
        )


def shapes_of(concurrency: str, context: int) -> list[Shape]:
    """Decode at each of the comma-separated numbers of sequences, then the prefill of one."""
    counts = [int(n) for n in concurrency.split(",")]
    decode = [Shape("decode", count, 1, context) for count in counts]
    return [*decode, Shape("prefill", 1, context, context)]


def open_engine(path: Path) -> tuple[CudaExecutable, StepCosts]:
    """The loaded CUDA engine of an artifact, and what its steps cost.

    Raises:
        InputError: Its engine is another backend's.
    """
    artifact = Artifact.open(path, "size")
    entry = artifact.engine()
    if entry.backend != BACKEND.name:
        raise InputError(
            f"its engine {entry.name} is not one of {BACKEND.name}",
            where=str(path),
            hint=f"compile it with --backend {BACKEND.name}",
        )
    engine = load_engine(artifact.engine_folder(entry), entry.spec, entry.data)
    return engine, BACKEND.step_costs(entry.data)


def measure(
    path: Path, model: Path | None, shapes: list[Shape], rounds: int, peaks: dict[str, float]
) -> dict[str, Any]:
    """All figures as one JSON object."""
    if model is not None:
        from benchmarks.cuda.torch_peer import TorchModel, TorchSteps
    engine, costs = open_engine(path)
    peer = None if model is None else TorchModel(str(model))
    rows = []
    for shape in fitting(engine.spec, shapes):
        timers: dict[str, Any] = engine_timers(engine, shape)
        if peer is not None:
            timers["torch"] = TorchSteps(peer, shape, rounds + WARM_UP)
        times: dict[str, list[float]] = {name: [] for name in timers}
        for index in range(rounds + WARM_UP):
            for name, timer in timers.items():
                seconds = timer.time()
                if index >= WARM_UP:
                    times[name].append(seconds)
        row: dict[str, Any] = {**vars(shape)}
        for name, seen in times.items():
            row[name] = {"best_ms": 1e3 * min(seen), "median_ms": 1e3 * statistics.median(seen)}
        for name in row.keys() & ENGINES:
            row[name] |= utilization(shape, min(times[name]), engine.spec, costs, peaks)
        if peer is not None:
            read = peer.weight_bytes() / min(times["torch"]) / peaks["read"]
            row["torch"]["weights_mbu"] = read
        rows.append(row)
    engine.close()
    return {"artifact": path.name, "gpu": gpu_name(), "peaks": peaks, "steps": rows}


def gpu_name() -> str:
    """The driver's name of the device."""
    import torch

    return str(torch.cuda.get_device_name())


def show(report: dict[str, Any]) -> None:
    """Print the figures as a table."""
    peaks = report["peaks"]
    print(
        f"{report['artifact']} on {report['gpu']}: read {peaks['read'] / 1e9:.0f} GB/s; Top/s: "
        + ", ".join(f"{name} {peaks[name] / 1e12:.0f}" for name in ("bf16", "int8", "fp32"))
    )
    print("phase    sequences  rows  context   optc ms    MBU    MFU  no graphs  torch ms  ratio")
    for row in report["steps"]:
        ours, torch = row["optc"], row.get("torch")
        line = f"{row['phase']:8} {row['sequences']:9} {row['rows']:5} {row['context']:8}"
        line += f" {ours['best_ms']:9.3f} {ours['mbu']:6.2f} {ours['mfu']:6.2f}"
        line += f" {row['optc without graphs']['best_ms']:10.3f}"
        if torch is not None:
            line += f" {torch['best_ms']:9.3f} {torch['best_ms'] / ours['best_ms']:6.2f}"
        print(line)


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, measure, print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.cuda", description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--model", type=Path, help="the artifact's model, for torch.compile")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    shapes = shapes_of(args.concurrency, args.context)
    try:
        require_gpu()
        from benchmarks.cuda.peaks import measure_peaks

        report = measure(args.artifact, args.model, shapes, args.rounds, measure_peaks())
    except OptcError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    show(report)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
