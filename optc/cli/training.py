"""The common parts of the two commands that train: progress, and what they print."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from optc.cli.output import figure, print_json, print_warnings, reserved_stdout, show, table
from optc.cli.progress import progress_on_stderr
from optc.system.needs import compile_packages

if TYPE_CHECKING:
    from optc.compiling.training.session import Outcome
    from optc.system.progress import Progress


def train_and_show(name: str, work: Callable[[Progress], Outcome], *, as_json: bool) -> None:
    """Run a training and print its figures."""
    with compile_packages(), reserved_stdout(), progress_on_stderr() as progress:
        outcome = work(progress)
    if as_json:
        print_json(name, {"folder": str(outcome.folder), **outcome.figures}, outcome.warnings)
        return
    print_warnings(outcome.warnings)
    rows = table("KL to the teacher on held-out text, nats a token", "step", "KL", numbers=("KL",))
    for one in outcome.figures["evaluations"]:
        rows.add_row(str(one["step"]), figure(one["kl"]))
    show(rows)
    figures = outcome.figures
    kind = "a Hugging Face folder" if figures.get("hugging_face") else "for --trained"
    click.echo(
        f"{outcome.folder} ({kind}): KL {figure(figures['start_kl'])} to {figure(figures['kl'])} "
        f"in {figures['tokens']} tokens, {figures['seconds']:.0f} s in {figures['precision']}"
    )
