"""Compare what ``optc plan`` predicts of a compile with what the compile then gives.

    python -m benchmarks.proof.plan_check [MODEL] [--recipes NAME,…] [--no-gates] [--busy]
        [--json FILE]

Each recipe of TVM for CPUs is planned and compiled, in processes of their own,
with the example's calibration and held-out text unless another model is given. Stated are peak
memory, bytes of the artifact, seconds by stage, and bytes that a decode step of one sequence reads:
predicted, what it was, and the ratio. Each compile begins with an empty cache of kernels. Seconds
hold on a machine that does nothing else: with --busy they are left out. How busy it was is in the
load average. A file that --json names keeps its rows of other recipes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optc.artifact.artifact import read_manifest
from optc.proof.roofline.costs import StepCosts
from optc.proof.roofline.estimate import decode_work

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/models/pycode"
TEXTS = (
    *("--calibration", str(ROOT / "examples/text/code_calibration.jsonl")),
    *("--eval-text", str(ROOT / "examples/text/code_heldout.jsonl")),
)
RECIPES = (
    *("fp32", "bf16-fused", "int8-fused", "int8-smooth", "int8-gptq", "int8-a16"),
    *("int6-fused", "int4-fast", "int4-fused", "kv-int4", "mixed-4", "mixed-3"),
    *("int3-fused", "int2-fused"),
    *("vocab-trim-int4", "prune-2to4-int8", "prune-50-int8"),
    *("prune-depth-int8", "prune-width-int8"),
)


def optc(*arguments: str, **environment: str) -> dict[str, Any]:
    """The JSON of a command; a gate that fails is no error here."""
    command = [sys.executable, "-m", "optc", *arguments, "--json"]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environment
    )
    if ran.returncode not in (0, 4):
        raise SystemExit(f"{' '.join(command)}\n{ran.stderr}")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def check(
    model: Path, recipe: str, texts: Sequence[str], *, gated: bool, timed: bool
) -> dict[str, Any]:
    """Predictions and facts of one recipe, and their ratios; seconds only if ``timed``."""
    planned = optc("plan", str(model), "--recipe", recipe, "--backends", "tvm")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "artifact"
        more = [*texts, "--keep-failed"] if gated else [*texts[:2], "--no-gates"]
        cache = str(Path(folder) / "cache")
        optc("compile", str(model), "--recipe", recipe, "-o", str(out), *more, OPTC_CACHE=cache)
        written = out if out.exists() else Path(f"{out}.failed")
        report = json.loads((written / "report.json").read_text())
        size = sum(file.stat().st_size for file in written.rglob("*") if file.is_file())
        entry = read_manifest(written).engines[0]
    costs = StepCosts.from_json(entry.data["costs"])
    estimate = planned["engines"][0]["estimate"]
    peak = "compile_peak_bytes" + ("" if gated else "_without_gates")
    stages = {k: v for k, v in planned["compile_seconds"].items() if gated or k != "gates"}
    pairs = {
        "peak_bytes": (planned[peak], report["peak_anon_bytes"]),
        "artifact_bytes": (planned["artifact_bytes"], size),
        "decode_bytes": (
            estimate["decode_bytes"],
            costs.bytes_of(decode_work(entry.spec, estimate["context"])),
        ),
    }
    if timed:
        pairs["seconds"] = sum(stages.values()), report["seconds"]
    found = {
        "recipe": recipe,
        **{
            name: {"predicted": mine, "was": its, "ratio": round(mine / its, 3)}
            for name, (mine, its) in pairs.items()
        },
        "load_average": round(os.getloadavg()[0], 1),
    }
    if timed:
        found["stages"] = {
            name: {"predicted": round(value, 1), "was": round(report["stages"].get(name, 0.0), 1)}
            for name, value in stages.items()
        }
    return found


def main() -> None:
    """Check all and print a line for each."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof.plan_check", description=__doc__)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--no-gates", action="store_true")
    parser.add_argument("--busy", action="store_true", help="leave seconds out")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    texts = TEXTS if args.model is None else ()
    rows: dict[str, dict[str, Any]] = {}
    if args.json and args.json.exists():
        rows = {row["recipe"]: row for row in json.loads(args.json.read_text())}
    how = {"gated": not args.no_gates, "timed": not args.busy}
    for recipe in args.recipes.split(","):
        rows[recipe] = check(args.model or MODEL, recipe, texts, **how)
        print(json.dumps(rows[recipe]), flush=True)
        if args.json:
            args.json.write_text(json.dumps([*rows.values()], indent=1) + "\n")


if __name__ == "__main__":
    main()
