"""The loss of int4-fused by the text that it calibrates with.

    python -m benchmarks.proof.calibration_texts [--text FILE]... [--json FILE]

Compiles ``examples/models/pycode``, a model of code, with its own calibration text, with the
shipped one, and with each FILE, and judges by its held-out text. Stated are the gates' figures.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import optc
from benchmarks.proof.methods import CALIBRATION, MODEL, SHOWN, TEXT
from optc.artifact.tasks.text_generation import TEXT_GENERATION


def figures(text: Path | None) -> dict[str, Any]:
    """Those of one compile; None is the shipped text."""
    with tempfile.TemporaryDirectory() as folder:
        artifact = optc.compile(
            MODEL,
            recipe="int4-fused",
            output=Path(folder) / "artifact",
            calibration=text,
            eval_text=TEXT,
            gate=[f"{name}=none" for name in TEXT_GENERATION.gates],
        )
        values = {gate["name"]: gate["value"] for gate in artifact.report()["gates"]}
    return {
        "text": "shipped" if text is None else text.name,
        **{name: values[name] for name in SHOWN},
    }


def main() -> None:
    """Compile with all and print a line for each."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof.calibration_texts", description=__doc__)
    parser.add_argument("--text", type=Path, action="append", default=[])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for text in (CALIBRATION, None, *args.text):
        rows.append(figures(text))
        print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
