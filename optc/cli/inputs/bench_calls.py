"""``optc bench`` of models that do not generate text token by token."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from optc.artifact.artifact import read_manifest
from optc.cli.inputs.calls import open_calls
from optc.cli.judged.bench import BenchJudge
from optc.cli.output import figure, print_json, print_warnings, reserved_stdout, show, table
from optc.cli.progress import progress_on_stderr
from optc.errors import InputError
from optc.proof.bench.calls import fitting, measure_calls
from optc.proof.bench.counts import parse_counts
from optc.proof.conditions.verdicts import check

#: Options that such calls have; others are refused.
_TAKEN = frozenset(
    {"artifact", "concurrency", "rounds", "engine", "threads", "inputs", "as_json"}
    | {"require", "compare", "markdown", "junit"}
)
_COLUMNS = ("at once", "in a second", "tokens/s", "sound s/s", "ms p50", "p90", "p99")


def bench_calls(
    context: click.Context,
    artifact: Path,
    given: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Measure whole calls of an artifact, and judge them.

    Raises:
        InputError: An option is of generators of text, or an input is none.
        GateError: A condition does not hold.
    """
    refuse_others(context, _TAKEN)
    judge = BenchJudge.of(given, workload=False, profiled=False, calls=True)
    warnings: list[str] = []
    with (
        reserved_stdout(),
        open_calls(artifact, given["inputs"], given["engine"], given["threads"]) as opened,
        progress_on_stderr() as progress,
    ):
        calls, info = opened
        counts = [1] if calls.most == 1 else parse_counts(given["concurrency"])
        counts = fitting([calls], counts, warnings)
        found = measure_calls([calls], counts, given["rounds"], progress)
    results = [one.to_json(calls.unit) for (one,) in found]
    task = read_manifest(artifact).task.name
    values: dict[str, Any] = {"engine": info, "task": task, "results": results}
    verdicts = judge.judge(values)
    judge.write(artifact.name, values, verdicts, warnings)
    if not as_json:
        print_warnings(warnings)
        print_calls(artifact.name, calls.unit, results)
        judge.show(values, verdicts)
    check(verdicts, {**values, "warnings": warnings})
    if as_json:
        print_json("bench", values, warnings)


def print_calls(name: str, unit: str, results: list[dict[str, Any]]) -> None:
    """A row for each number of items at once; columns without a figure are left out."""
    keys = ("items_per_s", "tokens_per_s", "audio_seconds_per_s")
    shown = [key for key in keys if any(one[key] is not None for one in results)]
    heads = [_COLUMNS[0], *(_COLUMNS[1 + keys.index(key)] for key in shown), *_COLUMNS[4:]]
    rows = table(f"{name}: calls of {unit}", *heads, numbers=heads)
    for one in results:
        rates = (figure(one[key]) for key in shown)
        times = (figure(value) for value in one["latency_ms"].values())
        rows.add_row(str(one["concurrency"]), *rates, *times)
    show(rows)


def refuse_others(context: click.Context, taken: frozenset[str]) -> None:
    """Refuse options that are stated and not ``taken``.

    Raises:
        InputError: One is stated.
    """
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in taken or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        raise InputError(
            "is of generators of text, and the model is none",
            where=parameter.opts[0],
            hint="leave it out",
        )
