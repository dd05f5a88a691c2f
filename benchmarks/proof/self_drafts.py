"""Drafts made of a model itself: what was predicted of them, and tokens a pass with the runtime.

    python -m benchmarks.proof.self_drafts ARTIFACT... [--json FILE]

Each artifact comes from ``optc compile examples/models/pycode --recipe RECIPE --draft self:auto
--no-gates --calibration examples/text/code_calibration.jsonl --eval-text
examples/text/code_heldout.jsonl -o ARTIFACT``: its report has acceptance, cost of a draft step by
bytes, and predicted gain of every draft that was tried. If one was kept, 24 other prompts of
held-out code are continued with four drafts a step (`benchmarks.proof.tokens_per_pass`), and the
text is checked to be that of plain decoding.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.proof.tokens_per_pass import run
from optc.artifact.artifact import Artifact

DRAFTS = 4


def measure(path: Path) -> dict[str, Any]:
    """One artifact's figures."""
    artifact = Artifact.open(path)
    report = artifact.report()
    results: dict[str, Any] = {
        "recipe": artifact.manifest.recipe["name"],
        "kept": report["draft"].get("spec"),
        "candidates": report["draft"]["candidates"],
        "weight_bytes": {one["name"]: one["weight_bytes"] for one in report["engines"]},
    }
    for temperature in (0.0, 1.0) if results["kept"] else ():
        plain, drafted = (run(path, kind, DRAFTS, temperature) for kind in ("off", "draft"))
        if plain["texts"] != drafted["texts"]:
            raise SystemExit(f"{path}: the text is not that of plain decoding")
        results[f"tokens_per_pass_at_temperature_{temperature:g}"] = drafted["tokens_per_pass"]
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifacts", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = []
    for artifact in arguments.artifacts:
        results.append(measure(artifact))
        print(json.dumps(results[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
