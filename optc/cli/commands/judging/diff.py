"""``optc diff``: two artifacts side by side, and a verdict on what may differ."""

from __future__ import annotations

from collections.abc import Sequence
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
    as_json: bool,
    **given: Any,
) -> None:
    """Show what differs between A, the baseline, and B: recipe, passes, weights by their digests,
    the gates' figures, sizes and versions; with --speed also speed, measured in turns.

    Each is an artifact, or a report: report.json, or what optc compile --json or optc inspect
    --json printed. Differences alone are no failure; conditions judge them (exit code 4). A figure
    that is asked for and was not measured fails.
    """
    from optc.proof.bench.interleaved import METRICS
    from optc.proof.conditions.differences.compare import difference, metrics_of
    from optc.proof.conditions.differences.subject import open_subject

    if not speed:
        _refuse_ignored(context)
    conditions = Conditions.parse(_OPTIONS, given.pop("require"), given.pop("fail_on"))
    files = SummaryFiles(given.pop("markdown"), given.pop("junit"))
    files.check()
    first, second = open_subject(a), open_subject(b)
    elsewhere = {} if speed else dict.fromkeys(METRICS, "add --speed")
    conditions.check(metrics_of(first, second, speed=speed), elsewhere=elsewhere)
    measured = _measure(first, second, _Speed(**given)) if speed else None
    found = difference(first, second, measured)
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


def _refuse_ignored(context: click.Context) -> None:
    """Refuse options that would change nothing."""
    flags = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name in _OF_SPEED:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InputError("needs --speed", where=flags[name], hint="optc diff --help")


def _measure(a: Subject, b: Subject, wanted: _Speed) -> Sequence[Compared]:
    """Both engines in turns, in this process.

    Raises:
        InputError: One of the two is no artifact, or the lengths do not fit.
    """
    from optc.proof.bench.counts import parse_counts
    from optc.proof.bench.interleaved import compare_speed
    from optc.proof.bench.throughput import fit
    from optc.runtime.loader import load

    for subject in (a, b):
        if subject.artifact is None:
            raise InputError(f"{subject.name} is no artifact", where="--speed")
    concurrency = parse_counts(wanted.concurrency)
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
