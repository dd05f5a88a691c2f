"""Peak memory of compiling a 1.2 B model with gates on: must stay below 3 GB.

    python -m benchmarks.steps.memory_1b [--model DIR]
        [--recipes int8-fused,int4-fast] [--work DIR]

Builds a random-weight Llama of Llama-3.2-1B's shape (unless --model names one), compiles it with
each recipe, gates on with bounds loose enough for random weights, generates a few tokens with
the artifact, and samples the anonymous and shared memory of all processes together. Prints one
JSON object; exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.inputs.build_random_llama import SHAPES, build
from optc.driver.compiling.memory import anonymous_bytes, process_tree

LIMIT_BYTES = 3 * 10**9
PERIOD_S = 0.02
#: Random weights are as hard to quantize as noise; these bounds only keep the gates measuring.
LOOSE_GATES = {"kl_mean": 10, "kl_p99": 100, "top1_agreement": 0, "perplexity_ratio": 100}
COMMAND_LINE = "import sys; from optc.cli.main import main; sys.exit(main())"
GENERATE = """
import json, sys, optc
with optc.load(sys.argv[1], kv_memory="256MiB") as engine:
    params = optc.SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
    (result,) = engine.generate([list(range(1, 65))], params)
    print(json.dumps({"token_ids": list(result.raise_for_error().token_ids)}))
"""


def run_sampled(command: list[str]) -> tuple[dict[str, Any], int, float]:
    """The JSON that the command prints, its tree's peak bytes, and seconds."""
    began = time.monotonic()
    peak = 0
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        output: list[str] = []
        reader = threading.Thread(target=lambda: output.append(process.communicate()[0]))
        reader.start()
        while reader.is_alive():
            tree = process_tree(process.pid)
            peak = max(peak, sum(anonymous_bytes(pid) for pid in tree))
            reader.join(PERIOD_S)
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(command[:4])} … failed:\n{output[0]}{errors.read()}")
    return json.loads(output[0]), peak, time.monotonic() - began


def measure(model: Path, recipe: str, work: Path) -> dict[str, Any]:
    """Compile and run with one recipe."""
    artifact = work / f"artifact-{recipe}"
    command = [sys.executable, "-c", COMMAND_LINE, "compile", str(model), "--recipe", recipe]
    command += ["-o", str(artifact), "--force", "--json"]
    for name, bound in LOOSE_GATES.items():
        command += ["--gate", f"{name}={bound}"]
    compiled, compile_peak, compile_s = run_sampled(command)
    generated, run_peak, run_s = run_sampled([sys.executable, "-c", GENERATE, str(artifact)])
    return {
        "recipe": recipe,
        "compile_peak_bytes": compile_peak,
        "compile_reported_peak_bytes": compiled["peak_anon_bytes"],
        "compile_seconds": round(compile_s, 1),
        "run_peak_bytes": run_peak,
        "run_seconds": round(run_s, 1),
        "artifact_bytes": sum(f.stat().st_size for f in artifact.rglob("*") if f.is_file()),
        "token_ids": generated["token_ids"],
        "gates": {gate["name"]: gate["value"] for gate in compiled["gates"]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="an existing model folder")
    parser.add_argument("--recipes", default="int8-fused,int4-fast")
    parser.add_argument("--work", type=Path, help="where models and artifacts go; kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="optc-memory-") as scratch:
        work = options.work or Path(scratch)
        model = options.model or work / "llama-1b"
        if not (model / "config.json").exists():
            build(SHAPES["llama-3.2-1b"], model)
        results = [measure(model, recipe, work) for recipe in options.recipes.split(",")]
    over = [r["recipe"] for r in results if r["compile_peak_bytes"] >= LIMIT_BYTES]
    report = {"limit_bytes": LIMIT_BYTES, "within_limit": not over, "results": results}
    print(json.dumps(report, indent=2))
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
