"""The cost of a KV cache of fewer bits, with windows of the latest tokens in more bits.

    python -m benchmarks.proof.kv_bits [--windows 60] [--only TEXT]… [--json FILE]

Nothing is compiled: `examples/models/pycode` runs in NumPy with float32 weights, and its keys and
values are rounded to types of which most have no kernel. Each is compared with float32 keys and
values on the windows that gates score, and on the copies of `copy_nll_added`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.proof.kv_bits.trials import Judge, types
from benchmarks.quality_per_byte.evaluate import HELD_OUT_WINDOWS

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "examples/models/pycode"
TEXT = ROOT / "examples/text/code_heldout.jsonl"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"


def main() -> None:
    """Print a row for each type, and write all of them after each."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof.kv_bits", description=__doc__)
    parser.add_argument("--windows", type=int, default=HELD_OUT_WINDOWS, help="of 512 tokens")
    parser.add_argument("--only", action="append", default=[], help="types whose name has TEXT")
    parser.add_argument("--json", type=Path, help="rows are merged into this file")
    args = parser.parse_args()
    known = json.loads(args.json.read_text()) if args.json and args.json.is_file() else []
    found = {row["kv"]: row for row in known}
    judge = Judge(MODEL, TEXT, CALIBRATION, args.windows)
    for name, kv in types().items():
        if args.only and not any(text in name for text in args.only):
            continue
        found[name] = {"kv": name, **judge.figures(kv)}
        print(json.dumps(found[name]), flush=True)
        if args.json:
            rows = ",\n".join(json.dumps(row) for row in found.values())
            args.json.write_text(f"[\n{rows}\n]\n")


if __name__ == "__main__":
    main()
