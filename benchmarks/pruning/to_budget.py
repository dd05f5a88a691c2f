"""What a budget loses with neurons to choose beside bits, and with bits alone, on held-out text.

    python -m benchmarks.pruning.to_budget 2bpw 3bpw … [--json FILE]

Compresses ``examples/models/pycode`` as ``mixed-3`` does (weights alone, corrected GPTQ) with
``examples/text/code_calibration.jsonl``, within each budget, with ``prune-to-budget`` and without,
and compares with the dense model on 60 windows of 512 tokens of ``code_heldout.jsonl``. Of the
formats, those in groups of 64. Rows that were measured replace those of the file.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.pruning.structured import CALIBRATION, MODEL, Dense, dense_model
from optc.errors import InputError
from optc.pipeline import registry
from optc.pipeline.pipeline import Pipeline

FORMATS = ("2g64", "3g64", "4g64", "5g64", "8")
QUANTIZE = {"bits": 4, "group_size": 64, "symmetric": False, "group_scales": "int"}


def pipeline_of(budget: str, *, prune: bool) -> Pipeline:
    """The passes for one row."""
    text = {"text": str(CALIBRATION), "folder": str(MODEL)}
    options: dict[str, dict[str, object]] = {
        **({"prune-to-budget": text} if prune else {}),
        "allocate-bits": {"budget": budget, "formats": FORMATS} | text,
        "propagate-errors": {**text},
        "quantize-weights": QUANTIZE | {"head_bits": 6, "method": "gptq"},
    }
    known = registry.passes()
    return Pipeline(tuple(known[name].from_options(own) for name, own in options.items()))


def figures(budget: str, dense: Dense, *, prune: bool) -> dict[str, Any]:
    """Those of one row: what was chosen and lost, or why the budget cannot be met."""
    row: dict[str, Any] = {"budget": budget, "prune": prune}
    model, start = dense_model(), time.perf_counter()
    try:
        records = pipeline_of(budget, prune=prune).run(model)
    except InputError as refused:
        return row | {"refused": refused.message}
    seconds = time.perf_counter() - start
    facts = {record.name: record.report.facts for record in records}
    found = dense.compare(model)
    pruned = facts.get("prune-to-budget", {})
    return row | {
        **{key: found[key] for key in ("kl_mean", "top1_agreement", "perplexity_ratio")},
        "reached": facts["allocate-bits"]["reached"],
        "neurons_left": [one["left"][1] for one in pruned.get("structures", [])],
        "tried": pruned.get("tried", []),
        "seconds": round(seconds),
    }


def keep(path: Path, row: dict[str, Any]) -> None:
    """Put a row into the file, by budget."""
    known = json.loads(path.read_text()) if path.exists() else []
    rows = {(one["budget"], one["prune"]): one for one in known}
    rows[row["budget"], row["prune"]] = row
    ordered = [rows[key] for key in sorted(rows)]
    path.write_text(json.dumps(ordered, indent=1) + "\n")


def main() -> None:
    """Measure the budgets and print a line for each row."""
    parser = argparse.ArgumentParser(prog="benchmarks.pruning.to_budget", description=__doc__)
    parser.add_argument("budgets", nargs="+", metavar="BUDGET")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    dense = Dense()
    for budget in args.budgets:
        for prune in (True, False):
            row = figures(budget, dense, prune=prune)
            print(json.dumps(row), flush=True)
            if args.json:
                keep(args.json, row)


if __name__ == "__main__":
    main()
