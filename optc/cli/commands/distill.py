"""``optc distill``: a model, pruned or not, learns a teacher's predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from optc.cli.options import MODEL, add_options
from optc.cli.output import json_option
from optc.cli.training import train_and_show
from optc.system.options.training_options import DistillOptions


@click.command("distill", short_help="Train a pruned model on a teacher's predictions.")
@click.argument("model", type=MODEL)
@add_options(DistillOptions)
@json_option
def command(model: Path, as_json: bool, **options: Any) -> None:
    """Train MODEL, or what --recipe's pruning leaves of it, on a teacher's predictions.

    'optc compile MODEL --recipe R --trained DIR' takes the result. Begun again after a stop with
    the same options, it goes on where it was.
    """

    def work(progress: Any) -> Any:
        from optc.compiling.training.distill import distill

        return distill(model, DistillOptions(**options), progress=progress)

    train_and_show("distill", work, as_json=as_json)
