"""The tables of ``optc bench``, from the values that its ``--json`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optc.cli.output import byte_text, figure, show, table

_RESULT = (
    "at once",
    "prefill tok/s",
    "decode tok/s",
    "TTFT ms p50",
    "TPOT ms p50",
    "p90",
    "p99",
    "MBU",
    "MFU",
)
_KERNEL = ("calls", "ms", "MB", "GB/s", "Mop", "Gop/s", "roof", "gap ms")
#: Bytes for a token that are worth a line: weights, not what libraries read once.
LEAST_READ = 1 << 20
#: Kernels of a step that get a line of their own.
_LINES = 12


def print_results(name: str, values: Mapping[str, Any]) -> None:
    """Throughput, latencies and utilizations of every concurrency; the ceilings below."""
    results = values["results"]
    first = results[0]
    title = f"{name}: {first['prompt_tokens']} prompt tokens, {first['output_tokens']} new ones"
    rows = table(title, *_RESULT, numbers=_RESULT)
    for r in results:
        rates = (r["prefill_tokens_per_s"], r["decode_tokens_per_s"], r["ttft_ms"]["p50"])
        shares = (figure(r["mbu"], 3), figure(r["mfu"], 3))
        numbers = (figure(value) for value in (*rates, *r["tpot_ms"].values()))
        rows.add_row(str(r["concurrency"]), *numbers, *shares)
    show(rows, *filter(None, (_disk_text(r, values["ceilings"] or {}) for r in results)))
    if values["ceilings"] is not None:
        show(ceilings_text(values["ceilings"]))


def _disk_text(result: Mapping[str, Any], ceilings: Mapping[str, Any]) -> str:
    """The reads from the disk that tokens cost; empty where that is nothing to speak of."""
    read, disk = result.get("disk_bytes_per_token", 0.0), ceilings.get("disk_gb_per_s")
    if read < LEAST_READ or disk is None:
        return ""
    most = figure(disk["best"] * 1e9 / read)
    return (
        f"{result['concurrency']} at once: {byte_text(round(read))} read from the disk for a token "
        f"and its share of the prompt, {figure(result['page_faults_per_token'])} page faults that "
        f"waited for it; at the disk's {figure(disk['best'])} GB/s at most {most} such tokens/s"
    )


def print_profile(name: str, values: Mapping[str, Any]) -> None:
    """One table for each profiled step."""
    for step in values["profile"]:
        title = (
            f"{name}: {step['phase']}, {step['sequences']} sequences, {step['rows']} rows, "
            f"{step['context']} tokens of context"
        )
        rows = table(title, "kernel", *_KERNEL, numbers=_KERNEL)
        rows.padding = (0, 0)  # a line has to fit into 80 columns
        rows.columns[0].no_wrap = True
        for kernel in step["kernels"][:_LINES]:
            rows.add_row(f"{kernel['name']} {kernel['shape']}", *_kernel_cells(kernel))
        rest = step["kernels"][_LINES:]
        if rest:
            rows.add_row(f"{len(rest)} others", *_kernel_cells(_sum(rest)))
        show(rows, _summary(step))
    show(ceilings_text(values["ceilings"]))


def ceilings_text(ceilings: Mapping[str, Any]) -> str:
    """The ceilings in one line: best, and median in brackets."""
    parts = []
    for key, value in ceilings.items():
        if key == "read_bytes":
            continue
        name, unit = key.split("_", 1)
        shown = "GB/s" if unit == "gb_per_s" else "Gop/s"
        parts.append(f"{name} {figure(value['best'])} ({figure(value['median'])}) {shown}")
    read_mb = figure(ceilings["read_bytes"] / 1e6)
    return f"ceilings, best (median): {', '.join(parts)}; read over {read_mb} MB"


def _sum(kernels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several kernels as one line, without rates."""
    summed = ("calls", "ms", "bytes", "ops", "gap_ms")
    totals = {key: sum(kernel[key] for kernel in kernels) for key in summed}
    return {**totals, "gb_per_s": None, "gop_per_s": None, "of_roof": None}


def _kernel_cells(kernel: Mapping[str, Any]) -> list[str]:
    moved = kernel["bytes"] / 1e6 or None
    ops = kernel["ops"] / 1e6 or None
    rates = (moved, kernel["gb_per_s"], ops, kernel["gop_per_s"])
    values = (kernel["ms"], *rates, kernel["of_roof"], kernel["gap_ms"])
    return [str(kernel["calls"]), *map(_short, values)]


def _short(value: float | None) -> str:
    """Five characters, or the whole number if it has more."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3f}"[:5]


def _summary(step: Mapping[str, Any]) -> str:
    ms = {key: figure(step[f"{key}_ms"], 3) for key in ("step", "kernel", "outside_kernels")}
    roof = f"{figure(step['roof_ms'], 3)} ms roof ({figure(step['of_roof'], 2)} of it reached)"
    return (
        f"step {ms['step']} ms = {ms['kernel']} ms in kernels + {ms['outside_kernels']} ms around "
        f"them; {roof}, {figure(step['gap_ms'], 3)} ms gap{_utilization(step)}\n"
    )


def _utilization(step: Mapping[str, Any]) -> str:
    """MBU of decode or MFU of prefill, with its range."""
    name = "mfu" if step["phase"] == "prefill" else "mbu"
    share = step[name]
    if share is None:
        return ""
    median, low, high = (figure(share[key], 2) for key in ("median", "low", "high"))
    return f"; {name.upper()} {median} ({low} to {high})"
