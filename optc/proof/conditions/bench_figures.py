"""The figures of ``optc bench --json`` by metric, and by the number of requests at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.proof.conditions.verdicts import Figures
from optc.system.safe_json import JSONError, parse_json

#: Of a measurement without a workload, one a concurrency.
RESULTS = (
    "prefill_tokens_per_s",
    "decode_tokens_per_s",
    *(f"{latency}_ms.{part}" for latency in ("ttft", "tpot") for part in ("p50", "p90", "p99")),
    "mbu",
    "mfu",
)
#: Of a workload.
WORKLOAD = (
    *("requests_per_s", "input_tokens_per_s", "output_tokens_per_s"),
    *(
        f"{latency}_ms.{part}"
        for latency in ("ttft", "tpot", "itl", "e2e", "queue")
        for part in ("p50", "p90", "p95", "p99", "mean")
    ),
    *("goodput.share", "goodput.requests_per_s", "failed", "preemptions"),
    *("acceptance_rate", "tokens_per_pass", "prefix_hit_rate", "kv_use.mean", "kv_use.peak"),
    *("busy", "mbu", "mfu"),
    *("cost.per_million_output_tokens", "cost.per_million_tokens"),
)
#: Of calls of models that do not generate text token by token, one a number of items at once.
CALLS = (
    "items_per_s",
    "tokens_per_s",
    "audio_seconds_per_s",
    *(f"latency_ms.{part}" for part in ("p50", "p90", "p99")),
)
#: What has to be equal so that figures can be compared.
_LENGTHS = ("prompt_tokens", "output_tokens")


def bench_figures(values: Mapping[str, Any]) -> Figures:
    """The figures of a command's values, with or without a workload.

    Raises:
        TypeError: A figure is no number, or lies in no object.
    """
    if "workload" in values:
        found = values["workload"]
        return {metric: {"": _number(found, metric)} for metric in WORKLOAD}
    return {
        metric: {str(one["concurrency"]): _number(one, metric) for one in values["results"]}
        for metric in (CALLS if "task" in values else RESULTS)
    }


def read_baseline(path: Path) -> dict[str, Any]:
    """Read a file that ``optc bench --json`` printed.

    Raises:
        InputError: It cannot be read, or holds something else.
    """
    wrong = InputError("is not what optc bench --json prints", where=str(path))
    try:
        values = parse_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except JSONError as error:
        raise wrong from error
    if not isinstance(values, dict) or values.get("schema") != "optc.bench.v1":
        raise wrong
    try:
        figures = bench_figures(values)
    except (TypeError, KeyError) as error:
        raise wrong from error
    if not any(figures.values()):
        raise InputError("has no figures to compare with", where=str(path))
    return values


def check_alike(values: Mapping[str, Any], baseline: Mapping[str, Any], where: str) -> None:
    """Refuse to compare measurements of different work.

    Raises:
        InputError: One is of a workload and the other not, or workloads or lengths differ.
    """
    if _work(values) != _work(baseline):
        raise InputError(
            f"the baseline measured {_work(baseline)}, this run {_work(values)}",
            where=where,
            hint="compare runs of the same workload, or of the same lengths",
        )


def _work(values: Mapping[str, Any]) -> str:
    """The measured work, in words."""
    if "workload" in values:
        return f"the workload {values['workload'].get('spec')}"
    if "task" in values:
        return f"calls of the task {values['task']}"
    results: Sequence[Mapping[str, Any]] = values["results"]
    lengths = {tuple(one.get(key) for key in _LENGTHS) for one in results}
    return ", ".join(f"{a} prompt and {b} output tokens" for a, b in sorted(lengths, key=repr))


def _number(value: Any, path: str) -> float | None:
    """The number at a path such as ``ttft_ms.p90``; None where it, or what it lies in, is null."""
    for key in path.split("."):
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise TypeError(f"{path} lies in no object")
        value = value[key]
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError(f"{path} is no number")
    found: float | None = value
    return found
