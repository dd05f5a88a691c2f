"""The loss from pruning ``examples/models/pycode``, weights alone.

    python -m benchmarks.pruning [--only TEXT]… [--scratch DIR] [--json FILE]

Every row prunes the float32 model with 64 windows of 512 tokens of
``examples/text/code_calibration.jsonl``, and is compared with the dense model on 60 windows of 512
tokens spread over ``examples/text/code_heldout.jsonl``: mean KL in nats a token, and perplexity.
Activations are float32, and so are weights: only zeros differ, and what makes up for them.

What was measured is merged into the result file, so that a part can be measured at a time:
``--only`` takes rows whose name holds TEXT (``--only "ADMM, sequential" --only 2:4``: any of them).
A row takes half a minute to three minutes on one core. Exits 1 if a row loses more than is wanted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.pruning.measure import measured
from benchmarks.pruning.rows import ROWS, Row
from benchmarks.quality_per_byte.evaluate import Evaluator

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/models/pycode"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
TEXT = ROOT / "examples/text/code_heldout.jsonl"
RESULT = ROOT / "benchmarks/results/pruning.json"


def chosen(rows: list[Row], only: list[str]) -> list[Row]:
    """Rows whose name holds one of the texts; all without a text.

    Raises:
        SystemExit: A text is in no name.
    """
    for text in only:
        if not any(text in row.name for row in rows):
            sys.exit(f"no row is called {text!r}; there are: {'; '.join(r.name for r in rows)}")
    return [row for row in rows if not only or any(text in row.name for text in only)]


def merged(rows: list[Row], old: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """``old`` with ``new`` in its place, in the order of the table; rows of others stay behind."""
    found = {(one["method"], one["amount"]): one for one in [*old, new]}
    order = {(row.method, row.amount): index for index, row in enumerate(rows)}
    return sorted(found.values(), key=lambda one: order.get((one["method"], one["amount"]), 1000))


def main() -> None:
    """Measure, write each row when it is done, judge."""
    parser = argparse.ArgumentParser(prog="benchmarks.pruning", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="rows whose name holds TEXT")
    parser.add_argument("--scratch", type=Path, help="where the dense model's logits lie (0.5 GB)")
    parser.add_argument("--json", type=Path, default=RESULT)
    args = parser.parse_args()
    rows = chosen(ROWS, args.only)
    with tempfile.TemporaryDirectory() as folder:
        evaluator = Evaluator(MODEL, TEXT, args.scratch or Path(folder))
        for row in rows:
            found = measured(row, evaluator, CALIBRATION)
            keep(args.json, found)
            print(json.dumps(found), flush=True)
    missed = [one for one in known(args.json)["rows"] if one["reached"] is False]
    if missed:
        sys.exit("; ".join(f"{one['method']}, {one['amount']}: missed" for one in missed))


def known(path: Path) -> dict[str, Any]:
    """The content of the result file so far."""
    if path.exists():
        content: dict[str, Any] = json.loads(path.read_text())
        return content
    return {"model": MODEL.name, "text": TEXT.name, "calibration": CALIBRATION.name, "rows": []}


def keep(path: Path, row: dict[str, Any]) -> None:
    """Write a row; the file is read again, for another part may have been measured meanwhile."""
    content = known(path)
    content["rows"] = merged(ROWS, content["rows"], row)
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
