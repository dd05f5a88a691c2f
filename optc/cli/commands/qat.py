"""``optc qat``: weights learn to be rounded as a recipe rounds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from optc.cli.options import MODEL, add_options
from optc.cli.output import json_option
from optc.cli.training import train_and_show
from optc.system.options.training_options import QatOptions


@click.command("qat", short_help="Train weights as a recipe rounds them.")
@click.argument("model", type=MODEL)
@add_options(QatOptions)
@json_option
def command(model: Path, as_json: bool, **options: Any) -> None:
    """Train the weights of MODEL as --recipe rounds them, from its own rounding on.

    'optc compile MODEL --recipe R --trained DIR' takes the result, codes and scales as they are.
    Begun again after a stop with the same options, it goes on where it was.
    """

    def work(progress: Any) -> Any:
        from optc.compiling.training.qat import qat

        return qat(model, QatOptions(**options), progress=progress)

    train_and_show("qat", work, as_json=as_json)
