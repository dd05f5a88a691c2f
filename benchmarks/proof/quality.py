"""Compile the example model and hold its gates against a fake quantization in NumPy.

    python -m benchmarks.proof.quality [--json FILE]

For int8-fused and int4-fast: compiles ``examples/models/pycode`` with its held-out text, reads
the gates' figures from the report and computes the same figures with `numpy_llama` on the same
windows. Exits 1 if the engine's mean KL exceeds 1.1 times the yardstick's.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import optc
from benchmarks.proof.numpy_llama import FakeQuant, NumpyLlama, divergence
from optc.proof.conversations.tokens import token_stream
from optc.proof.reference.text import cut_windows, read_documents

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/models/pycode"
TEXT = ROOT / "examples/text/code_heldout.jsonl"
YARDSTICKS = {"int8-fused": FakeQuant(8), "int4-fast": FakeQuant(4, 32)}


def main() -> None:
    """Measure both recipes and print a table."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof.quality", description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    stream = token_stream(read_documents(TEXT), MODEL / "tokenizer.json", 0, 1)
    windows = cut_windows(stream, 512, 60, start=0)[:, :-1]
    reference = NumpyLlama(MODEL, FakeQuant())
    rows = []
    for recipe, quant in YARDSTICKS.items():
        with tempfile.TemporaryDirectory() as folder:
            artifact = optc.compile(
                MODEL, recipe=recipe, output=Path(folder) / "artifact", eval_text=TEXT
            )
            report = json.loads((artifact.path / "report.json").read_text())
        values = {gate["name"]: gate["value"] for gate in report["gates"]}
        expected = divergence(reference, NumpyLlama(MODEL, quant), windows)
        rows.append(
            {
                "recipe": recipe,
                "kl_mean": values["kl_mean"],
                "numpy_kl_mean": expected["kl_mean"],
                "ratio": values["kl_mean"] / expected["kl_mean"],
                "top1_agreement": values["top1_agreement"],
                "numpy_top1_agreement": expected["top1_agreement"],
            }
        )
        print(json.dumps(rows[-1]))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    if any(row["ratio"] > 1.1 for row in rows):
        sys.exit("an engine loses more than 1.1 times what its yardstick loses")


if __name__ == "__main__":
    main()
