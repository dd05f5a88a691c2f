"""KL against bytes of all weights: optc's recipes beside the formats that other tools make.

    python -m benchmarks.quality_per_byte [--recipes NAME…] [--peers NAME…] [--only-ours]
        [--only-peers] [--only TEXT]… [--workdir DIR] [--json FILE]

Every peer quantizes ``examples/models/pycode`` with its own quantizer, and with
``examples/text/code_calibration.jsonl`` where it calibrates. One evaluator compares all with the
float32 model on the same 60 windows of 512 held-out tokens. Bytes are those of all weights: body,
embedding, head and norms, scales and zero points included. optc has a point for a recipe's weights
alone and one for its whole engine, with int8 activations and KV; peers have their weights alone,
unless their point says ``engine``.

What was measured is merged into the result file, so that a part can be measured again; a plot is
drawn beside it (.svg). Exits 1 if a peer's point lies below optc's curve (`curve.verdict`).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.quality_per_byte import ours, peers
from benchmarks.quality_per_byte.curve import JUDGED, verdict
from benchmarks.quality_per_byte.evaluate import Evaluator
from benchmarks.quality_per_byte.plot import svg, title_of
from benchmarks.quality_per_byte.points import Point, merged

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/models/pycode"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
TEXT = ROOT / "examples/text/code_heldout.jsonl"
RESULT = ROOT / "benchmarks/results/quality-per-byte.json"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.quality_per_byte", description=__doc__)
    names = [peer.name for peer in peers.PEERS]
    parser.add_argument("--recipes", nargs="*", help="instead of all recipes for TVM")
    parser.add_argument("--peers", nargs="*", choices=names, default=names)
    parser.add_argument("--only-ours", action="store_true", help="measure no peer")
    parser.add_argument("--only-peers", action="store_true", help="measure no recipe")
    parser.add_argument("--only", action="append", default=[], help="peers' formats with TEXT")
    parser.add_argument("--workdir", type=Path, default=Path(".peers"))
    parser.add_argument("--json", type=Path, default=RESULT)
    return parser.parse_args()


class Result:
    """The result file: what is in it, and what a run adds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        self.points = [Point(**entry) for entry in known.get("points", [])]
        self.missing: list[dict[str, str]] = known.get("missing", [])

    def add(self, points: list[Point], missing: list[dict[str, str]] | None = None) -> None:
        """Take points, and what could not be made, in the place of older ones; write all."""
        self.points = merged(self.points, points)
        found = {(one["who"], one["label"]): one for one in [*self.missing, *(missing or [])]}
        there = {(point.who, point.label) for point in points}
        self.missing = [one for key, one in sorted(found.items()) if key not in there]
        self.write()

    def write(self) -> None:
        """Write the file and the plot beside it."""
        content = {
            "model": MODEL.name,
            "text": TEXT.name,
            "calibration": CALIBRATION.name,
            "verdict": verdict(self.points),
            "missing": self.missing,
            "points": [point.as_json() for point in self.points],
        }
        self.path.write_text(json.dumps(content, indent=1) + "\n")
        if self.points:
            self.path.with_suffix(".svg").write_text(svg(self.points, title_of(content)))


def main() -> None:
    """Measure, write, judge."""
    args = arguments()
    evaluator = Evaluator(MODEL, TEXT, args.workdir / "quality")
    result = Result(args.json)
    if not args.only_peers:
        for recipe in args.recipes or ours.tvm_recipes():
            result.add(*ours.points(evaluator, recipe, TEXT, CALIBRATION))
            print(f"optc {recipe}", file=sys.stderr)
    if not args.only_ours:
        for peer in peers.PEERS:
            if peer.name in args.peers:
                result.add(*peers.points(peer, evaluator, CALIBRATION, args.workdir, args.only))
                print(peer.name, file=sys.stderr)
    result.write()
    print_table(result.points)
    found = verdict(result.points)
    print(json.dumps(found, indent=1))
    if found["held"] is False:
        below = sum(len(found[name]["below"]) for name in JUDGED if name in found)
        sys.exit(f"{below} points of peers lie below optc's curve")


def print_table(points: list[Point]) -> None:
    """Markdown on stdout."""
    print("| who | format | numbers | MB | bits, all | bits, body | mean KL | top-1 |")
    print("|---|---|---|---|---|---|---|---|")
    for p in points:
        top1 = p.figures["top1_agreement"]
        print(f"| {p.who} | {p.label} | {p.numerics} | {p.bytes / 1e6:.2f} | {p.bits_all:.2f} "
              f"| {p.bits_body:.2f} | {p.kl:.5f} | {top1:.3f} |")  # fmt: skip


if __name__ == "__main__":
    main()
