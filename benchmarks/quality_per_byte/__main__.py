"""KL against bytes of whole engines on real models: optc's recipes beside other tools' formats.

    python -m benchmarks.quality_per_byte --model smollm2-135m-instruct|gemma-3-270m
        [--windows 16] [--text FILE] [--recipes NAME…] [--peers NAME…] [--only TEXT]…
        [--only-ours] [--only-peers] [--workdir DIR] [--json FILE]
    python -m benchmarks.quality_per_byte --weights-alone [the same but --model and --windows]

Every tool is given the same float weights and the same text to calibrate with (the shipped one),
and runs as a whole engine, with the activations and the KV that it really runs. Judged by: windows
of 512 tokens of the gates' shipped text (``--text``: another), the same ids for everybody, every
position scored, against one float32 reference (transformers). Each tool's float32 engine is a
point too: its KL says that its conversion and its windows are right. Bytes are those of all
weights: body, embedding, head and norms, scales and zero points, no tokenizer.

The verdict is ``held`` if no peer's engine has both no more bytes and no more KL than one of
optc's; else the command exits with 1. The GGUF file as it came is a point that is held against
optc's engines of that file alone: its weights are not rounded again. What cannot be installed or
converted is listed with its reason. What was measured is merged into the result file, so that a
part can be measured again; a plot is drawn beside it (.svg).

With ``--weights-alone``: weights of ``examples/models/pycode`` in float32 arithmetic, by each
tool's own quantizer and with its calibration, on 60 windows of held-out text.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from benchmarks.peers import subjects
from benchmarks.quality_per_byte.engines import run as engines
from benchmarks.quality_per_byte.result import print_table
from benchmarks.quality_per_byte.weights_alone import run as weights_alone
from optc.errors import OptcError


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.quality_per_byte", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", choices=subjects.NAMES, help="whole engines on a real model")
    what.add_argument("--weights-alone", action="store_true", help="of the example")
    parser.add_argument("--windows", type=int, default=engines.WINDOWS, help="of 512 tokens")
    parser.add_argument("--text", type=Path, help="instead of the gates' shipped text")
    parser.add_argument("--recipes", nargs="*", help="instead of all recipes for TVM")
    parser.add_argument("--peers", nargs="*", help="instead of all peers")
    parser.add_argument("--only-ours", action="store_true", help="measure no peer")
    parser.add_argument("--only-peers", action="store_true", help="measure no recipe")
    parser.add_argument("--only", action="append", default=[], help="peers' formats with TEXT")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--workdir", type=Path, default=Path(".peers"))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    """Measure, write, judge."""
    args = arguments()
    try:
        result, found = weights_alone.measure(args) if args.weights_alone else engines.measure(args)
    except OptcError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print_table(result.points)
    for one in result.missing:
        print(f"missing: {one['who']} {one['label']}: {one['reason']}")
    print(json.dumps(found, indent=1))
    if found["held"] is False:
        sys.exit("points of peers lie below optc's curve")


if __name__ == "__main__":
    main()
