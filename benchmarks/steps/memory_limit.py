"""Peak memory of compiling a large model under a limit that the kernel holds, too.

    python -m benchmarks.steps.memory_limit [SHAPE] [--model DIR] [--recipes int8-fused,int4-fast]
        [--max-ram 3GB] [--set PASS.OPTION=VALUE]… [--no-gates] [--work DIR] [--json FILE]

Builds random weights of a shape (unless --model names a folder) and compiles them with each recipe
and ``--max-ram``. Beside the compile's own watch, RLIMIT_DATA lets no process map more private
memory than the limit. Bounds of gates are loose enough for random weights. A few tokens are
generated with the artifact. Stated are the anonymous and shared memory of all processes together,
and what ``optc plan`` predicts of it. Exits with 1 if a compile exceeds the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.inputs.build_random_llama import SHAPES, build
from optc.compiling.resolving.memory import tree_bytes
from optc.system.units import parse_bytes

ROOT = Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "examples/models/pycode"
PERIOD_S = 0.02
#: Random weights are as hard to quantize as noise; these bounds only keep the gates measuring.
LOOSE_GATES = {"kl_mean": 10, "kl_p99": 100, "top1_agreement": 0, "perplexity_ratio": 100}
GENERATE = """
import json, sys, optc
with optc.load(sys.argv[1], kv_memory="256MiB") as engine:
    params = optc.SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
    (result,) = engine.generate([list(range(1, 65))], params)
    print(json.dumps({"token_ids": list(result.raise_for_error().token_ids)}))
"""


def run_sampled(command: Sequence[str], limit: int = 0) -> tuple[dict[str, Any], int, float]:
    """The JSON that the command prints, its tree's peak bytes, and seconds.

    Args:
        command: Is run with ``RLIMIT_DATA`` if ``limit`` is not 0.
        limit: In bytes, for each process.
    """
    began, peak = time.monotonic(), 0
    bound = partial(resource.setrlimit, resource.RLIMIT_DATA, (limit, limit)) if limit else None
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=bound
        )
        output: list[str] = []
        reader = threading.Thread(target=lambda: output.append(process.communicate()[0]))
        reader.start()
        while reader.is_alive():
            peak = max(peak, tree_bytes(process.pid))
            reader.join(PERIOD_S)
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(command[:6])} … failed:\n{output[0]}{errors.read()}")
    return json.loads(output[0]), peak, time.monotonic() - began


def measure(model: Path, recipe: str, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Plan, compile and run with one recipe."""
    optc = [sys.executable, "-m", "optc"]
    sets = [word for one in options.set for word in ("--set", one)]
    planned, _, _ = run_sampled(
        [*optc, "plan", str(model), "--recipe", recipe, "--backends", "tvm", *sets, "--json"]
    )
    artifact = work / f"artifact-{recipe}"
    command = [*optc, "compile", str(model), "--recipe", recipe, *sets, "--json"]
    command += ["-o", str(artifact), "--force", "--max-ram", options.max_ram]
    if options.no_gates:
        command += ["--no-gates"]
    for name, bound in () if options.no_gates else LOOSE_GATES.items():
        command += ["--gate", f"{name}={bound}"]
    before = os.times()
    compiled, peak, seconds = run_sampled(command, parse_bytes(options.max_ram, "--max-ram"))
    after = os.times()
    generated, run_peak, _ = run_sampled([sys.executable, "-c", GENERATE, str(artifact)])
    gates = "_without_gates" if options.no_gates else ""
    return {
        "recipe": recipe,
        "options": options.set,
        "gates": {gate["name"]: gate["value"] for gate in compiled["gates"]},
        "planned_peak_bytes": planned[f"compile_peak_bytes{gates}"],
        "compile_peak_bytes": peak,
        "compile_reported_peak_bytes": compiled["peak_anon_bytes"],
        "compile_seconds": round(seconds, 1),
        "compile_processor_seconds": round(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system,
            1,
        ),
        "run_peak_bytes": run_peak,
        "artifact_bytes": sum(f.stat().st_size for f in artifact.rglob("*") if f.is_file()),
        "token_ids": generated["token_ids"],
    }


def main() -> None:
    """Measure every recipe and print one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shape", nargs="?", choices=sorted(SHAPES), default="llama-3.2-1b")
    parser.add_argument("--model", type=Path, help="an existing model folder")
    parser.add_argument("--recipes", default="int8-fused,int4-fast")
    parser.add_argument("--max-ram", default="3GB")
    parser.add_argument("--set", action="append", default=[], help="as of optc compile")
    parser.add_argument("--no-gates", action="store_true")
    parser.add_argument("--work", type=Path, help="where models and artifacts go; kept")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="optc-memory-") as scratch:
        work = options.work or Path(scratch)
        model = options.model or work / options.shape
        if not (model / "config.json").exists():
            build(SHAPES[options.shape], model, TOKENIZER)
        results = [measure(model, one, work, options) for one in options.recipes.split(",")]
    limit = parse_bytes(options.max_ram, "--max-ram")
    over = [r["recipe"] for r in results if r["compile_peak_bytes"] >= limit]
    report = {
        "shape": options.shape if options.model is None else options.model.name,
        "limit_bytes": limit,
        "within_limit": not over,
        "results": results,
    }
    text = json.dumps(report, indent=2)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n")
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
