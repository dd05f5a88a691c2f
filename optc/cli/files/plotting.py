"""``--plot FILE``: what a command measured, drawn into an SVG or HTML file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from optc.cli.files.output_file import check_output, write_output

if TYPE_CHECKING:
    from optc.artifact.pages.components import Section

Command = TypeVar("Command", bound=Callable[..., Any])
_SVG, _HTML = ".svg", ".html"


def plot_option(command: Command) -> Command:
    """Add ``--plot`` to a command, as its argument ``plot``; what cannot be written is refused
    before anything is measured."""
    return click.option(
        "--plot",
        type=click.Path(path_type=Path),
        callback=_check,
        metavar="FILE",
        help="Draw the figures into a file: .svg, or .html with tables beside them.",
    )(command)


def _check(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        check_output(path, (_SVG, _HTML), "--plot")
    return path


def write_plot(
    path: Path | None,
    title: str,
    values: Mapping[str, Any],
    sections: Callable[[Mapping[str, Any]], list[Section]],
) -> None:
    """Draw what a command measured; without a path nothing.

    Args:
        path: The file of ``--plot``.
        title: Of the page.
        values: As of the command's JSON object.
        sections: Draws them.

    Raises:
        InputError: The file cannot be written.
    """
    if path is None:
        return
    from optc.artifact.pages.markup import element
    from optc.artifact.pages.page import html_page, svg_file

    drawn = sections(values)
    if path.suffix.lower() == _SVG:
        write_output(path, svg_file(drawn))
        return
    head = [element("h1", title)]
    write_output(path, html_page(title, head, drawn, "Made by optc."))
