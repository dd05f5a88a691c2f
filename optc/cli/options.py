"""Click's options from a class of options (`optc.options`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from optc.options.option import Option, flag_name, options_of

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)


def add_options(kind: type[Any], *names: str) -> Callable[[F], F]:
    """A decorator that gives a command the options of the fields of ``kind``.

    Args:
        kind: A class of options.
        names: Of these fields only; none are all of them.
    """
    defaults = {f.name: f.default for f in fields(kind)}
    chosen = {n: o for n, o in options_of(kind).items() if not names or n in names}

    def decorate(command: F) -> F:
        for name, one in reversed(chosen.items()):  # click lists the last one first
            command = _click_option(name, one, defaults[name])(command)
        return command

    return decorate


def _click_option(name: str, one: Option, default: Any) -> Callable[[F], F]:
    flags = (one.short, flag_name(name)) if one.short else (flag_name(name),)
    more: dict[str, Any] = {"help": one.help, "metavar": one.metavar or None}
    if one.kind == "flag":
        more = {"help": one.help, "is_flag": True}
    elif one.kind == "texts":
        more["multiple"] = True
    elif one.kind == "path":
        more["type"] = PATH
    elif one.kind == "count":
        more["type"] = click.IntRange(min=1)
    elif one.kind == "count_or_auto":
        more["callback"] = _count_or_auto
    elif one.choices:
        more |= {"type": click.Choice(one.choices), "metavar": None}
    if one.show_default:
        more |= {"default": default, "show_default": True}
    return click.option(*flags, name, **more)


def _count_or_auto(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | str | None:
    """A number of at least 1, or ``auto``."""
    if value is None or value == "auto":
        return value
    if not value.isdecimal() or int(value) < 1:
        what = (parameter.metavar or "number").partition("|")[0].lower()
        raise click.BadParameter(f"{value!r} is neither a number of {what} nor auto")
    return int(value)
