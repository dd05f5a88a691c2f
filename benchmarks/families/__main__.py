"""The causal-LM types of transformers that optc takes, and what is proved of each.

    python -m benchmarks.families [--only TYPE]… [--last STAGE] [--set PASS.OPTION=VALUE]…
        [--json FILE] [--table FILE]

Every type of ``MODEL_FOR_CAUSAL_LM_MAPPING_NAMES`` is built as a tiny random model in a child
process, saved as people publish it, and taken through the stages: built, imported, canonical,
reference equal (the dense form in ONNX Runtime gives transformers' logits), planned (TVM has code
for every node), tokens equal (32 greedy tokens of TVM's float32 engine are transformers'), int8
gated (int8-fused loses what a fake quantization in transformers loses). ``--last`` ends earlier:
"planned" takes ten seconds a type, "tokens equal" a minute, "int8 gated" half a minute more.

A result is written when it is there, and a type that the file has at the wanted stage is not
measured again, unless ``--again``. ``--keep`` takes from the file what holds of a type up to
"tokens equal", and goes on behind it. ``--table`` writes the page ``docs/families.md``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from benchmarks.families.child import measured
from benchmarks.families.encoders import is_encoder_half
from benchmarks.families.layers_of import refused_layers
from benchmarks.families.page import page
from benchmarks.families.results import Results
from optc.importer.families.survey import ENCODER_HALF, FILE, STAGES, survey_of

_MEMORY = 6 << 30


def main() -> None:
    """Measure what is not known yet, one type after another."""
    parser = argparse.ArgumentParser(prog="benchmarks.families", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="a type; may be given again")
    parser.add_argument("--last", choices=STAGES, default="tokens equal", help="the last stage")
    parser.add_argument("--again", action="store_true", help="measure what is known, too")
    parser.add_argument("--failed", action="store_true", help="again those that stopped before")
    parser.add_argument("--keep", action="store_true", help="what the file says holds, holds")
    parser.add_argument("--set", action="append", default=[], help="pass.option=value of recipes")
    parser.add_argument("--timeout", type=float, default=400, help="seconds for a type")
    parser.add_argument("--json", type=Path, default=FILE)
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    unknown = sorted(set(args.only) - set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
    if unknown:
        sys.exit(f"no such type: {', '.join(unknown)}")
    if args.set and args.json == FILE:
        sys.exit("--set needs a --json of its own: the survey is of recipes as they ship")
    results = Results(args.json)
    for kind in args.only or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        known = results.get(kind)
        if known is not None and not args.again and not _wanted(known, args.last, args.failed):
            continue
        found = _found(args, kind, known if args.keep else None)
        results.put(kind, found)
        print(f"{kind}: {(found['stages'] or ['nothing'])[-1]} {found['reason']}", flush=True)
    print(results.summary())
    if args.table is not None:
        args.table.write_text(page(survey_of(results.content())))


def _wanted(known: dict[str, Any], last: str, failed: bool) -> bool:
    """True if a known type is measured on: to a later stage, or where it failed."""
    if known["group"] == ENCODER_HALF or last in known["stages"]:
        return False
    return failed or not known["reason"]


def _found(args: argparse.Namespace, kind: str, known: dict[str, Any] | None) -> dict[str, Any]:
    """The entry of a type; ``known`` is what holds of it already."""
    if is_encoder_half(kind):
        reason = "an encoder, or half of an encoder-decoder"
        return {"stages": [], "reason": reason, "group": ENCODER_HALF}
    found = measured(kind, args.last, args.timeout, _MEMORY, known, args.set)
    found["group"] = "decoder"
    if not found["stages"]:  # no tiny model: a user's model is refused for its layers all the same
        found["reason"] = refused_layers(kind) or found["reason"]
    return found


if __name__ == "__main__":
    main()
