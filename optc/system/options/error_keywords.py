"""Errors that name options as keyword arguments, for those who call a function.

Errors name options as the command line spells them. A function of the package has the same options
as keywords: `keywords` around it says ``max_ram`` where a command says ``--max-ram``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from optc.errors import OptcError
from optc.system.options.compile_options import CompileOptions
from optc.system.options.option import Option, flag_name, options_of

P = ParamSpec("P")
T = TypeVar("T")
#: A flag, and a value of it: in capitals, with an equals sign or a colon in it, or a word that is
#: one of an option's.
_FLAG = re.compile(
    r"(?P<flag>--[a-z][a-z-]*[a-z])"
    r"(?P<value> (?:[A-Z]+\b(?!')|auto\b|none\b|[\w.-]*[=:][\w.=:%*-]*\w))?"
)


def keywords(function: Callable[P, T]) -> Callable[P, T]:
    """``function``, whose errors name its options as keywords."""

    @wraps(function)
    def wrapped(*arguments: P.args, **values: P.kwargs) -> T:
        try:
            return function(*arguments, **values)
        except OptcError as error:
            error.message, error.where, error.hint = map(
                with_keywords, (error.message, error.where, error.hint)
            )
            error.args = (error.render(),)
            raise

    return wrapped


def with_keywords(text: str) -> str:
    """A text with the keywords of `CompileOptions` in the place of flags."""

    def keyword(found: re.Match[str]) -> str:
        flag, value = found["flag"], found["value"]
        if flag not in _flags():
            return found[0]
        name, one = _flags()[flag]
        if one.kind == "flag":
            return f"{name}=True{value or ''}"
        if value is None:
            return name
        return f"{name}={value[1:]}" if value[1:].isupper() else f"{name}={value[1:]!r}"

    return _FLAG.sub(keyword, text)


@cache
def _flags() -> Mapping[str, tuple[str, Option]]:
    """The options by their flags, with the names of their fields."""
    return {flag_name(name): (name, one) for name, one in options_of(CompileOptions).items()}
