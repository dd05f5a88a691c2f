"""Shows what a model thinks on stderr while it comes: stdout has the answer alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from optc.cli.output import visible

if TYPE_CHECKING:
    from optc.runtime.outputs import Delta


class Thinking:
    """Shows what deltas of one answer think, dim where stderr is a terminal."""

    def __init__(self) -> None:
        self._within = False

    def show(self, delta: Delta) -> None:
        """Show what a delta thinks; called before its text is shown."""
        if delta.reasoning:
            click.echo(click.style(visible(delta.reasoning), dim=True), nl=False, err=True)
            self._within = True
        if self._within and (delta.text or delta.finish_reason is not None):
            click.echo(err=True)
            self._within = False
