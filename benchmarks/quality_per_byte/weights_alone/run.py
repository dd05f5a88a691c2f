"""The example's weights alone: all recipes and all quantizers, one evaluator in float32."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.quality_per_byte.curve import verdict
from benchmarks.quality_per_byte.evaluate import Evaluator
from benchmarks.quality_per_byte.recipes import tvm_recipes
from benchmarks.quality_per_byte.result import Result
from benchmarks.quality_per_byte.weights_alone import ours, peers

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "examples/models/pycode"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
TEXT = ROOT / "examples/text/code_heldout.jsonl"
RESULT = ROOT / "benchmarks/results/quality-per-byte.json"


def measure(args: argparse.Namespace) -> tuple[Result, dict[str, Any]]:
    """Measure what the command line asks for; the result and its verdict."""
    evaluator = Evaluator(MODEL, TEXT, args.workdir / "quality")
    about = {"model": MODEL.name, "text": TEXT.name, "calibration": CALIBRATION.name}
    result = Result(args.json or RESULT, about, verdict)
    if not args.only_peers:
        for recipe in args.recipes or tvm_recipes():
            result.add(*ours.points(evaluator, recipe, TEXT, CALIBRATION))
            print(f"optc {recipe}", file=sys.stderr)
    if not args.only_ours:
        for peer in peers.PEERS:
            if not args.peers or peer.name in args.peers:
                result.add(*peers.points(peer, evaluator, CALIBRATION, args.workdir, args.only))
                print(peer.name, file=sys.stderr)
    result.write()
    return result, verdict(result.points)
