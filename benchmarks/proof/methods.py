"""Losses of methods of weight quantization on the same grids: plain rounding, and GPTQ, which may
propagate errors.

    python -m benchmarks.proof.methods [--json FILE]

Compiles ``examples/models/pycode`` by the recipe int4-fused with other options of quantize-weights,
its calibration text and its held-out text. Stated are the gates' figures, the bits of a weight
(head and embedding included), the seconds of the calibration and of rounding and packing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import optc
from optc.artifact.tasks.text_generation import TEXT_GENERATION

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/models/pycode"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
TEXT = ROOT / "examples/text/code_heldout.jsonl"
#: Options of quantize-weights beside the recipe's.
GRIDS = {
    "int4, groups of 32, integer scales; head int6": (),
    "int4, groups of 32, float scales; head int8": ("group_scales=float", "head_bits=8"),
    "int4, groups of 128, float scales; head int8": (
        *("group_scales=float", "head_bits=8", "group_size=128"),
    ),
    "int8 per channel": (
        *("bits=8", "group_size=0", "symmetric=true", "group_scales=float", "head_bits=8"),
    ),
}
#: Method of quantize-weights and strength of propagate-errors.
METHODS = {
    "round": ("round", 0.0),
    "gptq": ("gptq", 0.0),
    "gptq, errors propagated": ("gptq", 0.5),
}
SHOWN = ("kl_mean", "kl_p99", "top1_agreement", "perplexity_ratio")


def figures(grid: str, method: str) -> dict[str, Any]:
    """Those of one compile."""
    rounding, strength = METHODS[method]
    options = [f"quantize-weights.{one}" for one in (*GRIDS[grid], f"method={rounding}")]
    with tempfile.TemporaryDirectory() as folder:
        artifact = optc.compile(
            MODEL,
            recipe="int4-fused",
            output=Path(folder) / "artifact",
            calibration=CALIBRATION,
            eval_text=TEXT,
            set=[*options, f"propagate-errors.strength={strength}"],
            gate=[f"{name}=none" for name in TEXT_GENERATION.gates],
        )
        report = json.loads((artifact.path / "report.json").read_text())
    values = {gate["name"]: gate["value"] for gate in report["gates"]}
    passes = {one["name"]: one for one in report["passes"]}
    return {
        "grid": grid,
        "method": method,
        "bits_per_weight": passes["quantize-weights"]["facts"]["bits_per_weight"],
        **{name: values[name] for name in SHOWN},
        "calibrate_s": passes["propagate-errors"]["seconds"],
        "pack_s": report["engines"][0]["build"]["pack_seconds"],
    }


def main() -> None:
    """Compile all and print a line for each."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof.methods", description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for grid in GRIDS:
        for method in METHODS:
            rows.append(figures(grid, method))
            print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
