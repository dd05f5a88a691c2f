"""All that a GPU can tell, in one run: tests, gates, kernels, steps and serving; a page of results.

    python -m benchmarks.cuda.everything FOLDER [--minutes 12] [--model GGUF|FOLDER]
        [--shape llama-3.2-1b] [--only NAME…] [--page FILE]

A machine with a GPU is lent for minutes. So stages are processes of their own that go one after the
other, those first that say whether anything is right, and each gets what is left of the time; one
that fails or is cut off leaves its last lines and the others go on. FOLDER keeps artifacts and the
files of each stage, so that a second run does only what is missing; ``everything.json`` lists the
stages and ``--page`` is the page for benchmarks/results. Ends with 1 if a stage failed, and with 3
and the reason where there is no GPU.

Stages, for int8-fused, int4-fused and bf16-fused where RECIPE stands:
    tests              tests/backends/tvm_cuda/on_device, on the device
    gates-RECIPE       `optc compile` of --model (default: the example): gates measured on the GPU
    gates-onnxruntime  the same for ONNX Runtime's CUDA provider, gates-tensorrt for TensorRT
    artifact-RECIPE    an artifact of --shape with random weights, without gates
    steps-RECIPE       `benchmarks.cuda`: MBU and MFU of a step, beside torch.compile
    kernels-RECIPE     `benchmarks.cuda.kernels`: the time of each kernel
    serving-RECIPE     `optc bench` with 1, 16 and 64 sequences
    steps-in-order     int8-fused for sm_80, too, whose kernels wait for each other to end
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.cuda.__main__ import gpu_name, require_gpu
from benchmarks.cuda.outcome import Outcome
from benchmarks.cuda.page import page_of
from optc.backends.tvm_cuda.dependent_launch import LEAST as EARLY
from optc.errors import OptcError
from optc.system.hardware.machine import this_machine

RECIPES = ("int8-fused", "int4-fused", "bf16-fused")
#: Other backends whose gates need a GPU.
OTHERS = {"onnxruntime": "onnxruntime:cuda", "tensorrt": "tensorrt"}
#: Lines of a stage's output that are kept.
_LINES = 12
#: A stage is not begun with less time left, seconds.
_LEAST = 20.0
_EXAMPLE = Path("examples/models/pycode")


@dataclass(frozen=True)
class Stage:
    """A command.

    Attributes:
        name: As in the module's docstring.
        command: Behind ``python -m``.
        gives: A file or folder that is there once it has ended well.
    """

    name: str
    command: tuple[str, ...]
    gives: Path


def stages(folder: Path, model: Path, shape: str, sm: int) -> list[Stage]:
    """All stages in order, for a GPU of architecture ``sm``."""
    ours, weights = f"tvm-cuda:sm_{sm}", folder / shape

    def compiled(name: str, source: Path, recipe: str, backend: str, *more: str) -> Stage:
        command = ("optc", "compile", str(source), "--recipe", recipe, "--backend", backend)
        where = folder / name
        return Stage(name, (*command, "-o", str(where), "--force", *more), where)

    tests = ("pytest", "-q", "-p", "no:cacheprovider", "--junit-xml", str(folder / "tests.xml"))
    found = [Stage("tests", (*tests, "tests/backends/tvm_cuda/on_device"), folder / "tests.xml")]
    found += [compiled(f"gates-{recipe}", model, recipe, ours) for recipe in RECIPES]
    found.append(
        Stage("shape", ("benchmarks.inputs.build_random_llama", shape, str(weights)), weights)
    )
    for recipe in RECIPES:
        name = f"artifact-{recipe}"
        artifact = str(folder / name)
        found.append(compiled(name, weights, recipe, ours, "--no-gates"))
        for what, command in (
            ("steps", ("benchmarks.cuda", artifact, "--model", str(weights), "--json")),
            ("kernels", ("benchmarks.cuda.kernels", artifact, "--json")),
        ):
            file = folder / f"{what}-{recipe}.json"
            more = ("--concurrency", "1,8,16,32,64")
            found.append(Stage(f"{what}-{recipe}", (*command, str(file), *more), file))
        file = folder / f"serving-{recipe}.md"
        bench = ("optc", "bench", artifact, "--concurrency", "1,16,64", "--markdown", str(file))
        found.append(Stage(f"serving-{recipe}", bench, file))
    if sm >= EARLY:
        in_order = f"tvm-cuda:sm_80+sm_{sm}"
        name, file = "artifact-in-order", folder / "steps-in-order.json"
        found.append(compiled(name, weights, RECIPES[0], in_order, "--no-gates"))
        steps = ("benchmarks.cuda", str(folder / name), "--json", str(file))
        found.append(Stage("steps-in-order", steps, file))
    found += [
        compiled(f"gates-{name}", model, "bf16-fused", backend) for name, backend in OTHERS.items()
    ]
    return found


def run(stage: Stage, seconds: float) -> Outcome:
    """Run a stage for so many seconds at most."""
    command = [sys.executable, "-m", *stage.command]
    shown = " ".join(stage.command)
    if seconds < _LEAST:
        return Outcome(stage.name, shown, "no time")
    began = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
            state = "failed" if process.returncode or not stage.gives.exists() else "done"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it started
            output, _ = process.communicate()
            state = "cut off"
    said = output.decode(errors="replace").strip().splitlines()[-_LINES:]
    return Outcome(stage.name, shown, state, time.monotonic() - began, tuple(said))


def run_all(found: list[Stage], folder: Path, minutes: float) -> list[Outcome]:
    """Run what is missing, and keep the outcomes in the folder's ``everything.json``."""
    file = folder / "everything.json"
    kept = json.loads(file.read_text())["stages"] if file.exists() else []
    before = {one["name"]: Outcome(**{**one, "said": tuple(one["said"])}) for one in kept}
    end = time.monotonic() + 60 * minutes
    outcomes = []
    for stage in found:
        known = before.get(stage.name)
        if known is not None and known.state == "done" and stage.gives.exists():
            outcomes.append(known)
            continue
        print(f"{stage.name} …", flush=True)
        outcomes.append(run(stage, end - time.monotonic()))
        print(f"{stage.name}: {outcomes[-1].state}, {outcomes[-1].seconds:.0f} s", flush=True)
        report = {"gpu": gpu_name(), "stages": [asdict(one) for one in outcomes]}
        file.write_text(json.dumps(report, indent=1) + "\n")
    return outcomes


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run, write the page; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.cuda.everything", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--model", type=Path, default=_EXAMPLE)
    parser.add_argument("--shape", default="llama-3.2-1b")
    parser.add_argument("--only", nargs="*", help="stages whose names begin with one of these")
    parser.add_argument("--page", type=Path, help="Markdown")
    args = parser.parse_args(arguments)
    try:
        require_gpu()
    except OptcError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    args.folder.mkdir(parents=True, exist_ok=True)
    found = stages(args.folder, args.model, args.shape, this_machine().sm[0])
    if args.only:
        found = [stage for stage in found if stage.name.startswith(tuple(args.only))]
    outcomes = run_all(found, args.folder, args.minutes)
    if args.page:
        args.page.write_text(page_of(args.folder, gpu_name(), outcomes))
    return int(any(one.state != "done" for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
