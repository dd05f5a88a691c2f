"""The judging of ``optc bench``: conditions, a baseline, and the summary of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from optc.cli.judged.checks import condition_checks, conditions_figures, rich_table
from optc.cli.judged.options import SummaryFiles, require_option, summary_options
from optc.cli.output import figure, show
from optc.errors import InputError
from optc.proof.bench.counts import parse_counts
from optc.proof.conditions.bench_figures import (
    CALLS,
    RESULTS,
    WORKLOAD,
    bench_figures,
    check_alike,
    read_baseline,
)
from optc.proof.conditions.summary import Check, Figures, Summary
from optc.proof.conditions.verdicts import Conditions, Verdict, side_by_side

F = TypeVar("F", bound=Callable[..., Any])
_COMPARE = "--compare"
_OPTIONS = ("require", "compare", "markdown", "junit")


def judging_options(command: F) -> F:
    """Add ``--require``, ``--compare``, ``--markdown`` and ``--junit`` to a command."""
    help = "Of optc bench --json: what 0.95x in --require refers to."
    path = click.Path(path_type=Path)
    compare = click.option(_COMPARE, type=path, metavar="BASELINE.json", help=help)
    return require_option(compare(summary_options(command)))


@dataclass(frozen=True)
class BenchJudge:
    """The conditions, baseline and summary files of the options.

    Attributes:
        conditions: Of ``--require``.
        baseline: Of ``--compare``; None has none.
        files: Of the summary.
    """

    conditions: Conditions
    baseline: Mapping[str, Any] | None
    files: SummaryFiles

    @classmethod
    def of(
        cls, given: Mapping[str, Any], *, workload: bool, profiled: bool, calls: bool = False
    ) -> BenchJudge:
        """From the command's arguments; what is wrong with them is found before all work.

        Args:
            given: The command's.
            workload, profiled: Whether these are measured.
            calls: Whether the model does not generate text token by token.

        Raises:
            InputError: A condition, the baseline, or a file to write is wrong.
        """
        if profiled:
            for name in _OPTIONS:
                if given[name]:
                    hint = "optc bench --help"
                    raise InputError("changes nothing with --profile", where=f"--{name}", hint=hint)
        conditions = Conditions.parse("--require", given["require"])
        path: Path | None = given["compare"]
        metrics, cases = (WORKLOAD, [""]) if workload else (RESULTS, _cases(given["concurrency"]))
        metrics = CALLS if calls else metrics
        elsewhere = {} if calls else _unmeasured(given, workload)
        metrics = tuple(name for name in metrics if name not in elsewhere)
        conditions.check(metrics, baseline=path is not None, cases=cases, elsewhere=elsewhere)
        files = SummaryFiles(given["markdown"], given["junit"])
        files.check()
        return cls(conditions, None if path is None else read_baseline(path), files)

    def judge(self, values: dict[str, Any]) -> list[Verdict]:
        """The verdicts, which are added to the command's values as ``conditions``, and the figures
        beside the baseline's as ``compared``.

        Raises:
            InputError: The baseline is of other work, or a condition names a case that there is
                not.
        """
        figures = bench_figures(values)
        before = None
        if self.baseline is not None:
            check_alike(values, self.baseline, _COMPARE)
            before = bench_figures(self.baseline)
            values["compared"] = side_by_side(before, figures)
        verdicts = self.conditions.judge(figures, before)
        if self.conditions:
            values["conditions"] = [verdict.to_json() for verdict in verdicts]
        return verdicts

    def write(
        self,
        name: str,
        values: Mapping[str, Any],
        verdicts: Sequence[Verdict],
        warnings: Sequence[str],
    ) -> None:
        """Write the summary to the files that were asked for."""
        checks = [*_objectives(values), *condition_checks(verdicts)]
        figures = [*_compared(values), *_measured(values)]
        self.files.write(Summary(f"optc bench {name}", checks, figures, warnings))

    def show(self, values: Mapping[str, Any], verdicts: Sequence[Verdict]) -> None:
        """Print what was compared and judged."""
        show(*map(rich_table, [*_compared(values), *conditions_figures(verdicts)]))


def _unmeasured(given: Mapping[str, Any], workload: bool) -> dict[str, str]:
    """Figures that the command does not measure as it was called, and what does."""
    if not workload:
        return {name: "--workload measures it" for name in WORKLOAD if name not in RESULTS}
    found = {name: "leave out --workload" for name in RESULTS if name not in WORKLOAD}
    for part, option in (("goodput.", "slo"), ("cost.", "price_per_hour")):
        if given[option] is None:
            flag = f"--{option.replace('_', '-')}"
            found |= {name: f"add {flag}" for name in WORKLOAD if name.startswith(part)}
    return found


def _cases(concurrency: str) -> list[str]:
    return [str(count) for count in parse_counts(concurrency)]


def _objectives(values: Mapping[str, Any]) -> list[Check]:
    """True if some request met the objectives of ``--slo``, which is what the exit code judges."""
    goodput = values.get("workload", {}).get("goodput")
    if goodput is None:
        return []
    share = goodput["share"]
    return [Check("objectives", "--slo", share > 0, f"{share:.1%} of the requests meet them")]


def _measured(values: Mapping[str, Any]) -> list[Figures]:
    figures = bench_figures(values)
    cases = list(dict.fromkeys(case for of in figures.values() for case in of))
    columns = ("figure", *(f"{case} at once" if case else "" for case in cases))
    rows = [
        (metric, *(figure(of.get(case)) for case in cases))
        for metric, of in figures.items()
        if any(value is not None for value in of.values())
    ]
    return [Figures("measured", columns, rows)]


def _compared(values: Mapping[str, Any]) -> list[Figures]:
    rows = [
        (row["name"], row["case"], figure(row["a"]), figure(row["b"]), figure(row["ratio"], 3))
        for row in values.get("compared", ())
        if row["a"] is not None or row["b"] is not None
    ]
    columns = ("figure", "at once", "baseline", "now", "ratio")
    return [Figures("compared with the baseline", columns, rows)] if rows else []
