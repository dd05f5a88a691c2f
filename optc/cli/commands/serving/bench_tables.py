"""The table of ``optc bench-serve``, from the values that its ``--json`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optc.cli.commands.bench_workload import cost_lines, goodput_lines
from optc.cli.output import figure, show, table

_LATENCIES = ("ttft", "itl", "tpot", "e2e")
_PERCENTILES = ("p50", "p90", "p95", "p99", "mean")


def print_load(values: Mapping[str, Any]) -> None:
    """Latencies as a table, the other figures in lines below."""
    found = values["workload"]
    clients = found["concurrency"]
    loop = found["spec"] if clients is None else f"{clients} clients, {found['spec']}"
    title = f"{values['model']} at {values['url']}: {loop}"
    # Not as the table's: it would be broken where the table ends, which its figures decide.
    rows = table("", "ms", *_PERCENTILES, numbers=_PERCENTILES)
    for latency in _LATENCIES:
        cells = (figure(found[f"{latency}_ms"][key]) for key in _PERCENTILES)
        rows.add_row(latency.upper(), *cells)
    show(title, rows, *_lines(found))


def _lines(found: Mapping[str, Any]) -> list[str]:
    offered = found["offered_per_s"]
    asked = "" if offered is None else f"offered {figure(offered, 3)}/s, "
    lines = [
        f"{found['requests']} requests in {figure(found['seconds'])} s, {found['failed']} failed; "
        f"{asked}served {figure(found['requests_per_s'], 3)}/s",
        f"input {figure(found['input_tokens_per_s'])} tok/s, output "
        f"{figure(found['output_tokens_per_s'])} tok/s",
    ]
    lines += [
        f"{one['count']} failed by {one['kind']}: {one['message']}" for one in found["errors"]
    ]
    return [*lines, *goodput_lines(found["goodput"]), *cost_lines(found["cost"])]
