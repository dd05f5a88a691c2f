"""Models of named tensors: what compiles, how close it is, and what does not and why.

    python -m benchmarks.models real --folder DIR [--only PART] [--json FILE] [--table FILE]
    python -m benchmarks.models random [--only PART] [--timeout SECONDS] [--workdir DIR]
                                       [--json FILE]
    python -m benchmarks.models files [--only PART] [--workdir DIR] [--json FILE]
    python -m benchmarks.models nodes [--only PATTERN] [--json FILE]

``real`` compiles ONNX files that others trained, in float32 and int8, over inputs such as they get:
those of DIR (files and ``images/``), and those that packages ship
(`benchmarks.inputs.real_models`). ``random`` builds a model of every architecture of some tasks of
transformers and of many of timm, torchvision and diffusers (installed under ``--workdir``) with
random weights, and compares both recipes with PyTorch at three sizes of a batch; what FILE has is
not measured again, unless ``--only`` asks for it.
``files`` compiles the ONNX files that wheels of other projects hold, with random inputs: whether an
unknown file is taken.
``nodes`` runs the node tests of the onnx package that ONNX Runtime passes through import and
general passes. Results of ``real`` and ``random`` are kept row by row; ``--table`` writes the page
of all that FILE has.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.models.page import page

RESULTS = Path(__file__).parents[1] / "results/models.json"


def main() -> None:
    """Measure one part, and keep it beside the others."""
    parser = argparse.ArgumentParser(prog="benchmarks.models", description=__doc__)
    parser.add_argument("part", choices=("real", "files", "random", "nodes"))
    parser.add_argument("--folder", type=Path, help="of ONNX files and images")
    parser.add_argument("--only", default="", help="a part of a name")
    parser.add_argument("--workdir", type=Path, default=Path(".peers"), help="for packages")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for an architecture")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    kept: dict[str, Any] = json.loads(args.json.read_text()) if args.json.exists() else {}
    if args.part == "nodes":
        from benchmarks.models.node_tests import run_node_tests

        kept["nodes"] = run_node_tests(args.only).to_json()
        print(json.dumps(kept["nodes"], indent=1))
    elif args.part == "real":
        _real(kept, args)
    elif args.part == "files":
        _files(kept, args)
    else:
        _random(kept, args)
    _write(kept, args.json)
    if args.table is not None:
        args.table.write_text(page(kept), encoding="utf-8")


def _real(kept: dict[str, Any], args: argparse.Namespace) -> None:
    from benchmarks.models.real import measure_real

    rows = kept.setdefault("real", {})
    with tempfile.TemporaryDirectory(prefix="optc-models-") as scratch:
        for row in measure_real(args.folder, Path(scratch), args.only):
            rows[row["name"]] = row
            print(json.dumps(row), flush=True)
            _write(kept, args.json)


def _files(kept: dict[str, Any], args: argparse.Namespace) -> None:
    from benchmarks.models.files import measure_files

    rows = kept.setdefault("files", {})
    for name, row in measure_files(args.workdir, args.only):
        rows[name] = row
        print(json.dumps({name: row}), flush=True)
        _write(kept, args.json)


def _random(kept: dict[str, Any], args: argparse.Namespace) -> None:
    from benchmarks.models.packages import ensure_packages

    ensure_packages(args.workdir)
    from benchmarks.models.architectures import EXACT, kinds, measured, warm

    warm()
    rows = kept.setdefault("random", {})
    for number in (0, 1):  # float32 of all before int8, which takes longer
        for one in kinds():
            name, recipe = f"{one.library} {one.name}", (EXACT, one.recipe)[number]
            row = rows.get(name, {"task": one.task, "library": one.library, "name": one.name})
            if args.only not in name or (not args.only and (recipe in row or "error" in row)):
                continue
            row.pop("error", None)
            rows[name] = row | measured(one, recipe, args.timeout)
            print(json.dumps(rows[name]), flush=True)
            _write(kept, args.json)


def _write(kept: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
