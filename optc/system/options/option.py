"""An option as data: a field of a dataclass, from which the command line makes its own.

A class of options is a frozen dataclass whose fields are made by `option`. So a new option is one
field and its use: the keyword, the command line's option and its help follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

from optc.errors import InputError

#: What is read from the command line: text, several texts, a path, a number of at least 1, a flag,
#: a number or ``auto``; any integer or number, several integers, ``TOKEN=BIAS`` several times, the
#: text in a file, or ``true``, ``false`` or one of the choices.
Kind = Literal[
    "text",
    "texts",
    "path",
    "count",
    "flag",
    "count_or_auto",
    "integer",
    "integers",
    "number",
    "biases",
    "file",
    "truth",
]
T = TypeVar("T")
_KEY = "option"


@dataclass(frozen=True)
class Option:
    """A field as an option of the command line.

    Attributes:
        help: One sentence, for ``--help``.
        kind: How its value is written.
        metavar: Stands for the value in ``--help`` and in docs/cli.md.
        short: Another name, such as ``-o``; docs/cli.md has this one.
        show_default: Whether ``--help`` says the default.
        choices: All that a text may be; empty is any.
        unicode: Bytes that are no text of the locale's encoding are refused.
    """

    help: str
    kind: Kind = "text"
    metavar: str = ""
    short: str = ""
    show_default: bool = False
    choices: tuple[str, ...] = ()
    unicode: bool = False


def option(default: Any, help: str, **more: Any) -> Any:
    """A field of a class of options; ``more`` are those of `Option`. A default that is a class is
    made anew for each object."""
    metadata = {_KEY: Option(help, **more)}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def options_of(kind: type[Any]) -> dict[str, Option]:
    """The options of a class by the names of their fields, in the order of the class."""
    return {f.name: f.metadata[_KEY] for f in fields(kind) if _KEY in f.metadata}


def flag_name(field_name: str) -> str:
    """The name of a field on the command line: ``--max-ram``."""
    return "--" + field_name.replace("_", "-")


def with_changes(options: T, changes: Mapping[str, Any], allowed: Iterable[str] = ()) -> T:
    """``options`` with other values.

    Args:
        options: Of a class of options.
        changes: Values by name of the field.
        allowed: The names that may occur; empty are all fields of the class.

    Raises:
        TypeError: Another name occurs; says which is nearest.
    """
    names = tuple(allowed) or tuple(f.name for f in fields(options))  # type: ignore[arg-type]
    for name in changes:
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise TypeError(f"there is no option {name!r}{hint}: options are {', '.join(names)}")
    return replace(options, **changes)  # type: ignore[type-var]


def _said(value: object) -> object:
    """A value as the command line has it, where truths are words."""
    return str(value).lower() if isinstance(value, bool) else value


def normalize(options: object) -> None:
    """Turn texts in fields of the kind ``path`` into paths, and the values of ``texts`` into
    tuples; for ``__post_init__``.

    Raises:
        InputError: A value is none of an option's choices.
    """
    for name, one in options_of(type(options)).items():
        value = getattr(options, name)
        if one.choices and value is not None and _said(value) not in one.choices:
            raise InputError(
                f"{value!r} is not possible",
                where=flag_name(name),
                hint=f"one of {', '.join(one.choices)}",
            )
        if one.kind == "path" and isinstance(value, str):
            object.__setattr__(options, name, Path(value))
        elif one.kind == "texts" and value is not None:
            object.__setattr__(options, name, (value,) if isinstance(value, str) else tuple(value))
