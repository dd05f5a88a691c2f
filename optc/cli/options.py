"""Click's options from a class of options (`optc.system.options`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from optc.cli.completion import COMPLETIONS
from optc.cli.option_values import biases, count_or_auto, file_text, truth
from optc.cli.valid_text import valid_text
from optc.system.options.option import Option, flag_name, options_of
from optc.system.sources.recognize import check_source
from optc.system.sources.tensor_source import is_tensor_source

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)


class _Model(click.Path):
    """A model that is named: what it is instead is said before any package is loaded."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path.

        Raises:
            InputError, UnsupportedError: As `optc.system.sources.recognize.check_source`.
        """
        if ctx is None or not ctx.resilient_parsing:
            check_source(value)
        return super().convert(value, param, ctx)


class _AnyModel(_Model):
    """The same, or a model of named tensors."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or the text ``package.module:factory``."""
        if isinstance(value, str) and is_tensor_source(value):
            return value
        return super().convert(value, param, ctx)


MODEL = _Model(path_type=Path)
ANY_MODEL = _AnyModel(path_type=Path)
#: What click is told of each kind of value.
_KINDS: dict[str, dict[str, Any]] = {
    "text": {},
    "texts": {"multiple": True},
    "path": {"type": PATH},
    "count": {"type": click.IntRange(min=1)},
    "flag": {"is_flag": True},
    "count_or_auto": {"callback": count_or_auto},
    "integer": {"type": click.INT},
    "integers": {"type": click.INT, "multiple": True},
    "number": {"type": click.FLOAT},
    "biases": {"multiple": True, "callback": biases},
    "file": {"type": click.Path(path_type=Path, dir_okay=False), "callback": file_text},
    "truth": {"callback": truth},
}


def add_options(
    kind: type[Any], *names: str, defaults: Mapping[str, Any] | None = None
) -> Callable[[F], F]:
    """A decorator that gives a command the options of the fields of ``kind``.

    Args:
        kind: A class of options.
        names: Of these fields only; none are all of them.
        defaults: Where they are others than the class's, by name of the field.
    """
    values = {f.name: f.default for f in fields(kind)} | dict(defaults or {})
    chosen = {n: o for n, o in options_of(kind).items() if not names or n in names}

    def decorate(command: F) -> F:
        for name, one in reversed(chosen.items()):  # click lists the last one first
            command = _click_option(name, one, values[name])(command)
        return command

    return decorate


def stated(options: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The options of these names that were given; all of them are taken out of ``options``. What
    nobody states keeps the default of its field, which need not be None."""
    taken = {name: options.pop(name) for name in names}
    return {name: value for name, value in taken.items() if value is not None}


def _click_option(name: str, one: Option, default: Any) -> Callable[[F], F]:
    flags = (one.short, flag_name(name)) if one.short else (flag_name(name),)
    more = {"help": one.help, **_KINDS[one.kind]}
    if one.kind != "flag":
        more["metavar"] = one.metavar or None
    if one.choices:
        more |= {"type": click.Choice(one.choices), "metavar": None}
    if one.unicode:
        more["callback"] = valid_text
    if name in COMPLETIONS:
        more["shell_complete"] = COMPLETIONS[name]
    if one.show_default:
        more |= {"default": default, "show_default": True}
    return click.option(*flags, name, **more)
