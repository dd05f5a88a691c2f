"""The cost of each type of KV pools in quality: the gates' figures.

    python -m benchmarks.proof.kv_quality [--model smollm2-135m-instruct|gemma-3-270m]
        [--recipes fp32,bf16-fused,int8-fused,int4-fast,kv-int4] [--kv float32,…] [--recent 0,64]
        [--eval-text FILE] [--json FILE]

Compiles a model by each recipe with each KV type that its backend keeps, int4 with each number of
latest tokens in int8; the gates' bounds do not count, their figures do. The model is
``examples/models/pycode`` with its held-out text, or a real one with the gates' shipped text. Rows
are merged into FILE.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import optc
from benchmarks.inputs.real_models.catalogue import model_of
from benchmarks.inputs.real_models.fetch import real_model
from benchmarks.peers.subjects import NAMES
from optc import registry
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.recipes.recipe_additions import calibrates
from optc.runtime.executable.executable import KV_TYPES
from optc.system.hardware.target import parse_target

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/models/pycode"
TEXT = ROOT / "examples/text/code_heldout.jsonl"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
RECIPES = "fp32,bf16-fused,int8-fused,int4-fast,kv-int4"
_KEY = ("model", "recipe", "kv", "recent")
SHOWN = ("kl_mean", "kl_p99", "top1_agreement", "perplexity_ratio", "copy_nll_added")


def figures(model: str, recipe: str, dtype: str, recent: int, text: Path | None) -> dict[str, Any]:
    """The gates' figures of one compile."""
    source = real_model(model) / model_of(model).gguf if model else MODEL
    own_text = None if model else TEXT
    own_calibration = None if model or not calibrates(load_recipe(recipe)) else CALIBRATION
    with tempfile.TemporaryDirectory() as folder:
        artifact = optc.compile(
            source,
            recipe=recipe,
            output=Path(folder) / "artifact",
            eval_text=text or own_text,
            calibration=own_calibration,
            set=[f"kv-cache.dtype={dtype}", f"kv-cache.recent={recent}"],
            gate=[f"{name}=none" for name in TEXT_GENERATION.gates],
        )
        report = json.loads((artifact.path / "report.json").read_text())
    values = {gate["name"]: gate["value"] for gate in report["gates"]}
    key = _key(model, recipe, dtype, recent)
    return {**key, **{name: values.get(name) for name in SHOWN}}


def _key(model: str, recipe: str, dtype: str, recent: int) -> dict[str, Any]:
    latest = {"recent": recent} if recent else {}
    named = {"model": model} if model else {}
    return {**named, "recipe": recipe, "kv": dtype, **latest}


def _kept(recipe: str, dtype: str) -> bool:
    """True if the recipe's backend has pools of a type."""
    backend = registry.step_backend(load_recipe(recipe).backend)
    return backend.kv_pools(dtype, parse_target("native")).how != "unsupported"


def main() -> None:
    """Compile all and print a line for each."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof.kv_quality", description=__doc__)
    parser.add_argument("--model", choices=NAMES, default="", help="a real one")
    parser.add_argument("--eval-text", type=Path, help="instead of the model's")
    parser.add_argument("--recipes", default=RECIPES, help="by commas")
    parser.add_argument("--kv", default=",".join(KV_TYPES), help="KV types, by commas")
    parser.add_argument("--recent", default="0,32", help="latest tokens in int8, by commas")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = json.loads(args.json.read_text()) if args.json and args.json.is_file() else []
    types = [(d, r) for d in args.kv.split(",") for r in map(int, args.recent.split(","))]
    for recipe, (dtype, recent) in itertools.product(args.recipes.split(","), types):
        if not _kept(recipe, dtype) or (recent and dtype != "int4"):
            continue
        key = _key(args.model, recipe, dtype, recent)
        others = [row for row in rows if {k: row[k] for k in _KEY if k in row} != key]
        rows = [*others, figures(args.model, recipe, dtype, recent, args.eval_text)]
        print(json.dumps(rows[-1]), flush=True)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
