"""The page of tables of models of named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Error relative to the largest output up to which float32 agrees.
AGREES = 1e-4
#: The recipe of float32.
EXACT = "tensors-fp32"
_ROUNDED = ("vision-int8", "encoder-int8", "products-int8")


def page(kept: Mapping[str, Any]) -> str:
    """Markdown of all results."""
    parts = [_HEAD]
    if rows := kept.get("real"):
        parts.append(_real(rows))
    if rows := kept.get("files"):
        parts.append(_files(rows))
    if nodes := kept.get("nodes"):
        parts.append(_nodes(nodes))
    if rows := kept.get("random"):
        parts.append(_random(rows))
    return "\n".join(parts)


_HEAD = """# Models of named tensors

What compiles, how close it is, and what does not and why. `python -m benchmarks.models` measures
it; [how to compile one](../../docs/how-to/compile-any-module.md).

| | |
|---|---|
| command | `python -m benchmarks.models real --folder DIR --table FILE`, then `nodes`, `random` |
| machine | Zen 4 |
| date | 2026-11-29 |
"""


def _real(rows: Mapping[str, Any]) -> str:
    lines = [
        "## Files of others\n",
        "Inputs are such as the models get: 2,000 images of CIFAR-10, cuts of photos, written",
        "text, files of this project, tones. Float32 is compared with ONNX Runtime's own graph:",
        "the largest error over the largest output. Of 64 rows or more, those that find ranges do",
        "not judge. A gate that failed is named; nothing is written then.\n",
        "| file | float32: error | int8: dB | cosine, mean | same first class | bytes | gate |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        exact, rounded = row["tensors-fp32"], row["vision-int8"]
        share = None
        if "bytes" in exact and "bytes" in rounded:
            share = rounded["bytes"] / exact["bytes"]
        failed = f"; {rounded['error']}" if "error" in rounded else ""
        cells = [
            name,
            exact.get("error") or _number(exact.get("output_error"), "g"),
            _number(rounded.get("sqnr_db"), ".1f"),
            _number(rounded.get("cosine_mean"), ".4f"),
            _number(rounded.get("class_agreement"), ".4f"),
            _number(share, ".0%"),
            f"{row['gate']}{failed}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _files(rows: Mapping[str, Any]) -> str:
    taken = sum(row[EXACT]["exit"] == 0 for row in rows.values())
    lines = [
        "## Files of packages, with nothing said\n",
        f"ONNX files that wheels of other projects hold: {taken} of {len(rows)} are compiled in",
        "float32. Inputs are random, of the first size that a model takes, and so are those that",
        "find the ranges of int8. Nothing is written where a gate fails (exit code 4).\n",
        "| file | bytes | float32: error | int8: dB | exit code | reason |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        exact, rounded = row[EXACT], row["vision-int8"]
        cells = [
            name,
            f"{row['bytes']:,}",
            _number(exact.get("output_error"), ".1e"),
            _number(rounded.get("sqnr_db"), ".1f"),
            f"{exact['exit']}, {rounded['exit']}",
            _safe(exact.get("error") or rounded.get("error", "")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _nodes(nodes: Mapping[str, Any]) -> str:
    lines = [
        "## Node tests of the onnx package\n",
        f"Of {nodes['tests']:,} tests ONNX Runtime passes {nodes['direct']:,} as they are, and "
        f"{nodes['through']:,} of these behind import and general passes.\n",
    ]
    if nodes["lost"]:
        lines += ["| test | reason |", "|---|---|"]
        lines += [f"| {name} | {_safe(reason)} |" for name, reason in nodes["lost"].items()]
    return "\n".join([*lines, ""])


def _random(rows: Mapping[str, Any]) -> str:
    built = {n: r for n, r in rows.items() if not r.get("error", "").startswith("build:")}
    errors = [row[EXACT]["error"] for row in built.values() if EXACT in row]
    agree = sum(error <= AGREES for error in errors)
    tasks = len({row["task"] for row in built.values()})
    lines = [
        "## Architectures with random weights\n",
        "Modules of PyTorch's own layers, transformers' classes, shrunk, and models of timm,",
        f"torchvision and diffusers, for {tasks} tasks. {len(built)} architectures were built;",
        f"{agree} agree with PyTorch in float32 to {AGREES:g} of the largest output,",
        "at batches of 1, 2 and 5. Their cosine in int8 is of random weights and random inputs,",
        "by the recipe that takes them. `-` was not measured.\n",
        "| architecture | task | parameters | float32: error | int8: cosine | by | reason |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in sorted(built.items()):
        exact = row.get(EXACT, {})
        rounded: Mapping[str, Any] = next((row[one] for one in _ROUNDED if one in row), {})
        cells = [
            name,
            row["task"],
            _number(row.get("parameters"), ","),
            _number(exact.get("error"), ".1e"),
            _number(rounded.get("cosine"), ".4f"),
            rounded.get("recipe", "-"),
            _safe(row.get("error") or _apart(exact.get("error"))),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    left = {name: row["error"] for name, row in rows.items() if name not in built}
    if left:
        lines += ["\nNot built, which says nothing of optc:\n", "| class | reason |", "|---|---|"]
        lines += [f"| {name} | {_safe(why)} |" for name, why in sorted(left.items())]
    return "\n".join([*lines, ""])


def _apart(error: float | None) -> str:
    return "" if error is None or error <= AGREES else f"float32 is more than {AGREES:g} apart"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _safe(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:200]
