"""The page of results that `benchmarks.cuda.everything` writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.cuda.outcome import Outcome

#: Kernels of a step that are shown, the longest first.
_KERNELS = 6


def page_of(folder: Path, gpu: str, outcomes: Sequence[Outcome]) -> str:
    """Markdown: what each stage gave, and what did not end well."""
    parts = [
        f"# TVM engines for CUDA on an {gpu}",
        "\n".join(
            [
                "| | |",
                "|---|---|",
                "| command | `python -m benchmarks.cuda.everything FOLDER --page FILE` |",
                f"| machine | {gpu} |",
                f"| date | {date.today().isoformat()} |",
            ]
        ),
        _stages(outcomes),
        *(_said(one) for one in outcomes if one.name.startswith(("tests", "gates"))),
    ]
    for title, prefix, table in (
        ("Steps as one CUDA graph", "steps", _steps),
        ("The longest kernels of a step", "kernels", _kernels),
    ):
        found = sorted(folder.glob(f"{prefix}-*.json"))
        if found:
            rows = [row for file in found for row in table(file.stem, json.loads(file.read_text()))]
            parts += [f"## {title}", "\n".join(rows)]
    for file in sorted(folder.glob("serving-*.md")):
        parts += [f"## Serving: {file.stem.removeprefix('serving-')}", file.read_text().strip()]
    return "\n\n".join(parts) + "\n"


def _stages(outcomes: Sequence[Outcome]) -> str:
    rows = ["## Stages", "", "| stage | end | seconds | command |", "|---|---|---|---|"]
    rows += [f"| {o.name} | {o.state} | {o.seconds:.0f} | `{o.command}` |" for o in outcomes]
    failed = [o for o in outcomes if o.state in ("failed", "cut off") and o.said]
    return "\n\n".join(["\n".join(rows), *(_said(one) for one in failed)])


def _said(outcome: Outcome) -> str:
    return "\n".join([f"The end of {outcome.name}:", "```", *outcome.said, "```"])


def _steps(name: str, report: dict[str, Any]) -> list[str]:
    peaks = report["peaks"]
    tops = ", ".join(f"{kind} {peaks[kind] / 1e12:.0f}" for kind in ("bf16", "int8", "fp32"))
    rows = [f"`{name}`: reading {peaks['read'] / 1e12:.2f} TB/s; Top/s: {tops}.", ""]
    rows += [
        "| step | optc, ms | MBU | MFU | without graphs, ms | torch.compile bf16, ms |",
        "|---|---|---|---|---|---|",
    ]
    for row in report["steps"]:
        ours, torch = row["optc"], row.get("torch")
        peer = "-" if torch is None else f"{torch['best_ms']:.3f}"
        rows.append(
            f"| {_step(row)} | {ours['best_ms']:.3f} | {ours['mbu']:.2f} | {ours['mfu']:.2f}"
            f" | {row['optc without graphs']['best_ms']:.3f} | {peer} |"
        )
    return [*rows, ""]


def _kernels(name: str, report: dict[str, Any]) -> list[str]:
    rows = [f"`{name}`", "", "| step | kernel | calls | µs |", "|---|---|---|---|"]
    for row in report["steps"]:
        for kernel in row["kernels"][:_KERNELS]:
            name, calls = kernel["kernel"][:60], kernel["calls"]
            rows.append(f"| {_step(row)} | {name} | {calls:.0f} | {kernel['microseconds']:.1f} |")
    return [*rows, ""]


def _step(row: dict[str, Any]) -> str:
    return f"{row['phase']} of {row['sequences']} by {row['rows']}, context {row['context']}"
