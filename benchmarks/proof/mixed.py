"""Losses of formats chosen under a budget, beside uniform ones and mixes made by hand.

    python -m benchmarks.proof.mixed [--json FILE]

On ``examples/models/pycode``: the weights alone, rounded by GPTQ with Hessians of 64 windows of the
calibration text, activations float32. Stated are bits of a weight, the head's and the embedding's
and all scales included, and the mean KL in nats a token over 60 windows of 512 tokens, spread over
the held-out text; all mixes run side by side. For each chosen one also what it loses beside the
line through the two nearest uniform formats (logarithm of KL over bits), and beside the uniform or
hand-made one of the same bits. Sensitivities that FILE has already are not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from optc.importer.import_model import import_model
from optc.ir.pipeline import registry
from optc.ir.pipeline.entries import read_pipeline
from optc.passes.numerics.gptq.weights import Factors
from optc.passes.numerics.knapsack import Choice, choose
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.budget.allocate_bits import FORMATS
from optc.passes.quantize.budget.groups import Group, groups_of
from optc.passes.quantize.budget.sensitivity import Rater, note_hessians
from optc.passes.quantize.layer_schemes import format_text, read_format
from optc.proof.conversations.tokens import token_stream
from optc.proof.reference.calibration import calibration_of
from optc.proof.reference.text import WINDOW_TOKENS, cut_windows, read_documents
from optc.runtime.executable.executable import Int32
from optc.system.progress import telling

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/models/pycode"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
TEXT = ROOT / "examples/text/code_heldout.jsonl"
BASE = Scheme(4, 64, symmetric=False, integer_scales=True)
#: Body, and head, of uniform formats.
UNIFORM = (("3g64", "6g64"), ("3g32", "6g32"), ("4g64", "6g64"), ("4g32", "6g32"))
BUDGETS = (3.0,)


@dataclass(frozen=True)
class Mix:
    """A format for every group of weights.

    Attributes:
        name: What it is called.
        kind: ``uniform``, ``by hand`` or ``chosen``.
        formats: One for each group.
        beside: The name of the mix or budget whose bits a chosen one may have.
    """

    name: str
    kind: str
    formats: tuple[str, ...]
    beside: str = ""


def uniform(groups: Sequence[Group], body: str, head: str) -> Mix:
    """All layers alike."""
    formats = tuple(head if group.is_head else body for group in groups)
    return Mix(f"{body}, head {head}", "uniform", formats)


def by_hand(groups: Sequence[Group]) -> list[Mix]:
    """As llama.cpp mixes (``llama_tensor_get_type``), with QKV as one where V is more there."""
    layers = max(_layer(group) for group in groups) + 1
    more = {i for i in range(layers) if i < layers // 8 or i >= 7 * layers // 8 or i % 3 == 2}

    def q4_k_m(layer: int, part: str) -> str:
        return "6g64" if layer in more and part in ("qkv", "down") else "4g64"

    def q3_k_m(layer: int, part: str) -> str:
        if part == "qkv":
            return "5g64" if layer < 2 else "4g64"
        return "4g64" if part == "o" or (part == "down" and layer in more) else "3g64"

    rules = {"as Q4_K_M": q4_k_m, "as Q3_K_M": q3_k_m}
    return [
        Mix(
            name,
            "by hand",
            tuple("6g64" if g.is_head else rule(_layer(g), _part(g)) for g in groups),
        )
        for name, rule in rules.items()
    ]


def chosen(groups: Sequence[Group], kls: Sequence[dict[str, float]], most: int) -> tuple[str, ...]:
    """The formats of the least loss within ``most`` bits."""
    items = [
        [Choice(_bits([group], [text]), kl) for text, kl in own.items()]
        for group, own in zip(groups, kls, strict=True)
    ]
    found = zip(kls, choose(items, most), strict=True)
    return tuple(list(own)[i] for own, i in found)


def _layer(group: Group) -> int:
    return -1 if group.is_head else int(group.tensors[0].split(".")[2])


def _part(group: Group) -> str:
    name = group.name
    return "qkv" if "q_proj" in name else "o" if "o_proj" in name else name.split(".")[-2]


def _bits(groups: Sequence[Group], formats: Sequence[str]) -> int:
    return sum(
        group.bits(read_format(text, BASE, text))
        for group, text in zip(groups, formats, strict=True)
    )


def line(points: Sequence[tuple[float, float]], bits: float) -> float | None:
    """KL at ``bits`` on the line through the two nearest points (bits, KL) around it; None where
    there is none."""
    ordered = sorted(points)
    for (low, kl_low), (high, kl_high) in pairwise(ordered):
        if low <= bits <= high:
            share = (bits - low) / (high - low)
            return math.exp((1 - share) * math.log(kl_low) + share * math.log(kl_high))
    return None


def sensitivities(rater: Rater, groups: Sequence[Group]) -> list[dict[str, float]]:
    """The KL of each group alone in each format."""
    schemes = [group.fitting(read_format(text, BASE, text) for text in FORMATS) for group in groups]
    rated = rater.rate(groups, schemes)
    return [{format_text(one.scheme): one.kl for one in own} for own in rated]


def all_mixes(groups: Sequence[Group], kls: Sequence[dict[str, float]]) -> list[Mix]:
    """Uniform ones, those made by hand, and chosen ones of their bits and of the budgets."""
    fixed = [*(uniform(groups, *one) for one in UNIFORM), *by_hand(groups)]
    weights = sum(group.weights for group in groups)
    sizes = {one.name: _bits(groups, one.formats) for one in fixed}
    sizes |= {f"{budget}bpw": int(budget * weights) for budget in BUDGETS}
    return fixed + [
        Mix(f"chosen within {name}", "chosen", chosen(groups, kls, most), name)
        for name, most in sizes.items()
    ]


def rows_of(
    groups: Sequence[Group],
    mixes: Sequence[Mix],
    kls: Sequence[float],
    alone: Sequence[dict[str, float]],
) -> list[dict[str, Any]]:
    """For each mix what is stated of it."""
    weights = sum(group.weights for group in groups)
    names = [group.name for group in groups]
    rows: list[dict[str, Any]] = []
    for mix, kl in zip(mixes, kls, strict=True):
        parts = [own.get(text) for own, text in zip(alone, mix.formats, strict=True)]
        known = [one for one in parts if one is not None]
        rows.append(
            {
                "name": mix.name,
                "kind": mix.kind,
                "bits_per_weight": _bits(groups, mix.formats) / weights,
                "kl_mean": kl,
                "kl_sum_of_parts": sum(known) if len(known) == len(parts) else None,
                "formats": dict(zip(names, mix.formats, strict=True)),
            }
        )
    points = [(r["bits_per_weight"], r["kl_mean"]) for r in rows if r["kind"] == "uniform"]
    by_name = {row["name"]: row["kl_mean"] for row in rows}
    for mix, row in zip(mixes, rows, strict=True):
        between, beside = line(points, row["bits_per_weight"]), by_name.get(mix.beside)
        row["kl_over_line"] = row["kl_mean"] / between if between else None
        row["kl_over_that_of_the_same_bits"] = row["kl_mean"] / beside if beside else None
    return rows


def windows_of(text: Path, windows: int) -> Int32:
    """Windows [W, 512] spread over a text, documents framed as the model was trained."""
    frame = json.loads((MODEL / "config.json").read_text())
    ids = frame["bos_token_id"], frame["eos_token_id"]
    stream = token_stream(read_documents(text), MODEL / "tokenizer.json", *ids)
    return cut_windows(stream, WINDOW_TOKENS, windows, ids[0])[:, :-1].copy()


def measure(known: dict[str, Any], keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All mixes; sensitivities only if they are not ``known``, and then they are kept first."""
    model = import_model(MODEL).model
    read_pipeline(["canonicalize"], registry).run(model)
    groups = groups_of(model, head=True)
    store = calibration_of(model)
    tokens = windows_of(CALIBRATION, 64)
    note_hessians(model, tokens, groups, store)
    factors = Factors(store)
    alone = known.get("sensitivity")
    if alone is None:
        alone = sensitivities(Rater(model, tokens[::16], store, factors), groups)
        keep({"sensitivity": alone})
    mixes = all_mixes(groups, alone)
    held_out = windows_of(TEXT, 60)
    changes = [
        {i: read_format(text, BASE, text) for i, text in enumerate(mix.formats)} for mix in mixes
    ]
    kls = Rater(model, held_out, store, factors).measure(changes, groups)
    mixed = rows_of(groups, mixes, kls, alone)
    return {"tokens": int(held_out.size), "sensitivity": alone, "mixes": mixed}


def main() -> None:
    """Measure all and print a line for each."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof.mixed", description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    known = json.loads(args.json.read_text()) if args.json and args.json.is_file() else {}

    def keep(found: dict[str, Any]) -> None:
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")

    with telling(lambda stage, done, total: print(f"{stage} {done}/{total}", end="\r", flush=True)):
        found = measure(known, keep)
    for row in found["mixes"]:
        print({key: value for key, value in row.items() if key != "formats"})
    keep(found)


if __name__ == "__main__":
    main()
