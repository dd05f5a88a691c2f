"""The time of a compile with compiled kernels in the cache, and without.

    python -m benchmarks.steps.compile_again [MODEL] [--recipe NAME] [--other NAME] [--rounds 3]
        [--json FILE]

Each round compiles MODEL without gates for TVM: with an empty cache, again with the full one, and
then with another recipe. Stated are medians of the seconds of the compiler's process and of the
whole command, and how many kernels were compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def compile_once(model: Path, recipe: str, work: Path) -> dict[str, float]:
    """Seconds and compiled kernels of one compile whose cache is in ``work``."""
    artifact = work / "artifact"
    command = [sys.executable, "-m", "optc", "compile", str(model), "--recipe", recipe]
    command += ["--backend", "tvm", "--no-gates", "-o", str(artifact), "--force"]
    began = time.monotonic()
    environment = os.environ | {"OPTC_CACHE": str(work / "cache")}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    whole = time.monotonic() - began
    (engine,) = json.loads((artifact / "report.json").read_text())["engines"]
    build = engine["build"]
    return {
        "compiler_s": build["import_seconds"] + build["compile_seconds"],
        "whole_s": whole,
        "kernels_compiled": build["kernels_compiled"],
    }


def main() -> None:
    """Measure all rounds and print one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, default=ROOT / "examples/models/pycode")
    parser.add_argument("--recipe", default="int8-fused")
    parser.add_argument("--other", default="int4-fast", help="the recipe that follows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cases = (("empty", options.recipe), ("again", options.recipe), ("other", options.other))
    found: dict[str, list[dict[str, float]]] = {name: [] for name, _ in cases}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="optc-again-") as folder:
            for name, recipe in cases:
                found[name].append(compile_once(options.model, recipe, Path(folder)))
    report: dict[str, Any] = {
        "model": options.model.name,
        "recipes": [options.recipe, options.other],
        "rounds": options.rounds,
    }
    for name, rounds in found.items():
        report[name] = {key: round(median(r[key] for r in rounds), 2) for key in rounds[0]}
    text = json.dumps(report, indent=2)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
