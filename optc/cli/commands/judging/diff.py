"""``optc diff``: two artifacts side by side, and a verdict on what may differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from optc.cli.artifact_path import ARTIFACT
from optc.cli.commands.judging.diff_tables import diff_figures, same_line
from optc.cli.judged.checks import condition_checks, conditions_figures, rich_table
from optc.cli.judged.options import SummaryFiles, require_option, summary_options
from optc.cli.options import add_options
from optc.cli.output import json_option, print_json, print_warnings, reserved_stdout, show
from optc.cli.progress import progress_on_stderr
from optc.errors import InputError
from optc.proof.conditions.summary import Summary
from optc.proof.conditions.verdicts import Conditions, check
from optc.runtime.settings import ServeSettings

if TYPE_CHECKING:
    from optc.proof.bench.interleaved import Compared
    from optc.proof.conditions.differences.subject import Subject

#: Options that mean nothing without ``--speed``.
_OF_SPEED = ("prompt_tokens", "output_tokens", "concurrency", "rounds", "engine", "threads")
_OPTIONS = "--fail-on or --require"


@dataclass(frozen=True)
class _Speed:
    """The options of ``--speed``; see `optc.proof.bench.interleaved.compare_speed`."""

    prompt_tokens: int
    output_tokens: int
    concurrency: str
    rounds: int
    engine: str | None
    threads: int | None


@click.command("diff", short_help="Compare two artifacts, and judge what differs.")
@click.argument("a", type=ARTIFACT)
@click.argument("b", type=ARTIFACT)
@click.option(
    "--fail-on",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 4 if it holds: 'kl_mean>1.1x' (of A's), 'bytes>20MiB'; repeated.",
)
@require_option
@click.option(
    "--outputs",
    is_flag=True,
    help="Of models that do not generate text: run both on the same inputs, and compare.",
)
@click.option(
    "--inputs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="For --outputs and --speed of such models, as of optc compile [some that ship, or "
    "noise]; repeated.",
)
@click.option("--speed", is_flag=True, help="Measure both in turns on this machine.")
@click.option("--concurrency", default="1", show_default=True, metavar="N,N,…")
@click.option("--prompt-tokens", type=click.IntRange(min=1), default=128, show_default=True)
@click.option("--output-tokens", type=click.IntRange(min=1), default=64, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@add_options(ServeSettings, "engine", "threads")
@summary_options
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    a: Path,
    b: Path,
    speed: bool,
    outputs: bool,
    inputs: Sequence[Path],
    as_json: bool,
    **given: Any,
) -> None:
    """Show what differs between A, the baseline, and B: recipe, passes, weights by their digests,
    the gates' figures, sizes and versions; with --speed also speed, measured in turns; with
    --outputs what B makes of inputs beside what A makes of them, by the task's measures.

    Each is an artifact, or a report: report.json, or what optc compile --json or optc inspect
    --json printed. Differences alone are no failure; conditions judge them (exit code 4). A figure
    that is asked for and was not measured fails.
    """
    from optc.proof.conditions.differences.compare import (
        OUTPUTS,
        difference,
        metrics_of,
        speed_metrics,
    )
    from optc.proof.conditions.differences.subject import open_subject

    _refuse_ignored(context, speed=speed, outputs=outputs)
    conditions = Conditions.parse(_OPTIONS, given.pop("require"), given.pop("fail_on"))
    files = SummaryFiles(given.pop("markdown"), given.pop("junit"))
    files.check()
    first, second = open_subject(a), open_subject(b)
    elsewhere = {} if speed else dict.fromkeys(speed_metrics(second), "add --speed")
    metrics = metrics_of(first, second, speed=speed, outputs=outputs)
    if not outputs:
        others = metrics_of(first, second, speed=speed, outputs=True)
        elsewhere |= dict.fromkeys((m for m in others if m.startswith(OUTPUTS)), "add --outputs")
    conditions.check(metrics, elsewhere=elsewhere)
    compared = _compare(first, second, inputs, given) if outputs else None
    measured = _measure(first, second, _Speed(**given), inputs) if speed else None
    found = difference(first, second, measured, compared)
    values, warnings = found.values, list(found.notes)
    verdicts = conditions.judge(found.b, found.a)
    if conditions:
        values["conditions"] = [verdict.to_json() for verdict in verdicts]
    figures = diff_figures(values)
    title = f"optc diff {first.name} {second.name}"
    files.write(Summary(title, condition_checks(verdicts), figures, warnings))
    if not as_json:
        print_warnings(warnings)
        show(*map(rich_table, [*figures, *conditions_figures(verdicts)]))
        click.echo(same_line(values), nl=bool(same_line(values)))
    check(verdicts, {**values, "warnings": warnings})
    if as_json:
        print_json("diff", values, warnings)


def _refuse_ignored(context: click.Context, *, speed: bool, outputs: bool) -> None:
    """Refuse options that would change nothing."""
    flags = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    of_both = ("engine", "threads", "inputs")
    for name in (*_OF_SPEED, "inputs"):
        if speed or (outputs and name in of_both):
            continue
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            needs = "--outputs or --speed" if name == "inputs" else "--speed"
            raise InputError(f"needs {needs}", where=flags[name], hint="optc diff --help")


def _compare(
    a: Subject, b: Subject, inputs: Sequence[Path], given: Mapping[str, Any]
) -> dict[str, float | None]:
    from optc.cli.inputs.compared import compare_outputs

    paths = [_folder(one, "--outputs") for one in (a, b)]
    with reserved_stdout():
        return compare_outputs(paths[0], paths[1], inputs, given["engine"], given["threads"])


def _folder(subject: Subject, option: str) -> Path:
    if subject.artifact is None:
        raise InputError(f"{subject.name} is no artifact", where=option)
    return subject.artifact.path


def _measure(a: Subject, b: Subject, wanted: _Speed, inputs: Sequence[Path]) -> Sequence[Compared]:
    """Both engines in turns, in this process.

    Raises:
        InputError: One of the two is no artifact, or the lengths do not fit.
    """
    from optc.cli.inputs.calls import generates
    from optc.proof.bench.counts import parse_counts
    from optc.proof.bench.interleaved import compare_speed
    from optc.proof.bench.throughput import fit
    from optc.runtime.loader import load

    concurrency = parse_counts(wanted.concurrency)
    if not generates(_folder(a, "--speed")) and not generates(_folder(b, "--speed")):
        return _measure_calls(a, b, wanted, concurrency, inputs)
    if inputs:
        raise InputError("is for models that do not generate text", where="--inputs")
    options: dict[str, Any] = {
        "engine": wanted.engine,
        "threads": wanted.threads,
        "prefix_cache": False,
        "verify": "size",  # the digests have just been checked
    }
    with (
        reserved_stdout(),
        progress_on_stderr() as progress,
        load(a.name, **options) as first,
        load(b.name, **options) as second,
    ):
        context = min(first.max_context, second.max_context)
        prompt, output = fit(wanted.prompt_tokens, wanted.output_tokens, context)
        return compare_speed(
            first,
            second,
            prompt_tokens=prompt,
            output_tokens=output,
            concurrency=concurrency,
            rounds=wanted.rounds,
            progress=progress,
        )


def _measure_calls(
    a: Subject, b: Subject, wanted: _Speed, counts: Sequence[int], inputs: Sequence[Path]
) -> Sequence[Compared]:
    """Time calls of both in turns."""
    from optc.cli.inputs.calls import open_calls
    from optc.proof.bench.calls import compare_calls, fitting, measure_calls

    paths = [_folder(one, "--speed") for one in (a, b)]
    with (
        reserved_stdout(),
        progress_on_stderr() as progress,
        open_calls(paths[0], inputs, wanted.engine, wanted.threads) as (first, _),
        open_calls(paths[1], inputs, wanted.engine, wanted.threads) as (second, _),
    ):
        both = [first, second]
        fit = fitting(both, counts, [])
        return compare_calls(measure_calls(both, fit, wanted.rounds, progress))
