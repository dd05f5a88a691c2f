"""The loss from taking out whole structures, weights alone, against the dense model.

    python -m benchmarks.pruning.structured [--only TEXT]… [--json FILE]

Prunes ``examples/models/pycode`` with ``examples/text/code_calibration.jsonl`` (64 windows of 512
tokens) and compares both in float32 on 60 windows of 512 tokens of ``code_heldout.jsonl``. What was
measured replaces its rows in the file, so that a part can be measured again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx_ir as ir

from benchmarks.quality_per_byte.evaluate import HELD_OUT_WINDOWS, windows_of
from optc.importer.import_model import import_model
from optc.ir.pipeline import registry
from optc.ir.pipeline.pipeline import Pipeline
from optc.proof.gates.divergence import RowDivergence, summarize
from optc.proof.reference.blockwise import BlockwiseReference
from optc.runtime.executable.executable import Float32
from optc.system.hardware.target import usable_threads

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/models/pycode"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
TEXT = ROOT / "examples/text/code_heldout.jsonl"
#: Rows of logits that are compared at a time.
_ROWS = 2048
#: Passes and their options, by what they take out.
ROWS: dict[str, tuple[tuple[str, dict[str, object]], ...]] = {
    "an eighth of the neurons": (("prune-width", {"target": "0.875x"}),),
    "a quarter of the neurons, cut": (("prune-width", {"target": "0.75x", "refit": False}),),
    "a quarter of the neurons": (("prune-width", {"target": "0.75x"}),),
    "half of the neurons": (("prune-width", {"target": "0.5x"}),),
    "a KV head of twelve, cut": (("prune-heads", {"target": "0.92x", "refit": False}),),
    "a KV head of twelve": (("prune-heads", {"target": "0.92x"}),),
    "a quarter of the KV heads": (("prune-heads", {"target": "0.75x"}),),
    "an MLP, cut": (("prune-depth", {"units": "mlp", "target": "0.9x", "refit": False}),),
    "an MLP": (("prune-depth", {"units": "mlp", "target": "0.9x"}),),
    "two MLPs": (("prune-depth", {"units": "mlp", "target": "0.7x"}),),
    "an eighth of all sub-layers": (("prune-depth", {"target": "0.875x"}),),
    "an eighth, by influence": (("prune-depth", {"target": "0.875x", "choose": "influence"}),),
    "a layer": (("prune-depth", {"units": "layers", "target": "0.9x"}),),
    "a fifth of the neurons, a KV head of twelve": (
        ("prune-heads", {"target": "0.92x"}),
        ("prune-width", {"target": "0.8x"}),
    ),
}


def dense_model() -> ir.Model:
    """The example in dense form."""
    model = import_model(MODEL).model
    passes = registry.pass_groups()["canonicalize"]
    Pipeline(tuple(one() for one in passes if one.name == "canonicalize")).run(model)
    return model


class Dense:
    """The dense model's hidden states on the held-out windows."""

    def __init__(self) -> None:
        self.windows = windows_of(MODEL, TEXT, HELD_OUT_WINDOWS)
        self.reference = BlockwiseReference(dense_model(), usable_threads())
        self.hidden = self.reference.hidden_states(self.windows[:, :-1])

    def compare(self, model: ir.Model) -> dict[str, float]:
        """KL, top-1 agreement and perplexity of another model on the same windows."""
        other = BlockwiseReference(model, usable_threads())
        hidden, targets = other.hidden_states(self.windows[:, :-1]), self.windows[:, 1:].ravel()
        parts = []
        for start in range(0, len(targets), _ROWS):
            rows = slice(start, min(start + _ROWS, len(targets)))
            divergence = RowDivergence(targets[rows])
            for tile, its in zip(self.reference.tiles(), other.tiles(), strict=True):
                own: Float32 = self.reference.logits(self.hidden[rows], tile)
                divergence.add(own, other.logits(hidden[rows], its), tile.start)
            parts.append(divergence.result())
        other.close()
        summary = summarize(parts)
        return asdict(summary) | {"perplexity_ratio": summary.perplexity_ratio}


def figures(name: str, dense: Dense) -> dict[str, Any]:
    """Those of one row."""
    text = {"text": str(CALIBRATION), "folder": str(MODEL)}
    known = registry.passes()
    passes = tuple(known[one].from_options(options | text) for one, options in ROWS[name])
    model, start = dense_model(), time.perf_counter()
    records = Pipeline(passes).run(model)
    seconds = time.perf_counter() - start
    found = dense.compare(model)
    counts = [record.report.facts["parameters"] for record in records]
    return {
        "row": name,
        "pipeline": Pipeline(passes).spec(),
        "parameters": counts[-1][1] / counts[0][0],
        **{key: found[key] for key in ("kl_mean", "top1_agreement", "perplexity_ratio")},
        "seconds": round(seconds, 1),
        "details": [record.report.details for record in records],
    }


def main() -> None:
    """Measure the rows and print a line for each."""
    parser = argparse.ArgumentParser(prog="benchmarks.pruning.structured", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="rows called or with TEXT")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    dense = Dense()
    for name in ROWS:
        if not args.only or any(_means(text, name) for text in args.only):
            row = figures(name, dense)
            print(json.dumps(row), flush=True)
            if args.json:
                keep(args.json, row)


def _means(text: str, name: str) -> bool:
    return text == name if text in ROWS else text in name


def keep(path: Path, row: dict[str, Any]) -> None:
    """Put a row into the file, in the order of `ROWS`."""
    known = json.loads(path.read_text()) if path.exists() else []
    rows = {one["row"]: one for one in known} | {row["row"]: row}
    ordered = [rows[name] for name in ROWS if name in rows]
    path.write_text(json.dumps(ordered, indent=1) + "\n")


if __name__ == "__main__":
    main()
