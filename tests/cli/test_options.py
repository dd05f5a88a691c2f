"""Options of the command line are made from a class of options: a new one is one field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from optc.cli.options import add_options
from optc.system.options import CompileOptions
from optc.system.options.option import option


@dataclass(frozen=True, kw_only=True)
class Dummy(CompileOptions):
    """A compile with one option more: all that a new option takes, beside its use."""

    dummy: int | None = option(None, "A new option.", kind="count", metavar="N")
    words: Sequence[str] = option(("a",), "Words.", kind="texts", short="-w")


def parsed(*arguments: str, names: Sequence[str] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}

    @click.command()
    @add_options(Dummy, *names)
    def command(**options: Any) -> None:
        found.update(options)

    result = CliRunner().invoke(command, list(arguments))
    if result.exit_code:
        raise click.UsageError(result.output)
    return found


def test_a_new_field_is_an_option() -> None:
    found = parsed("--dummy", "3", "-w", "x", "--words", "y", "--output", "o", "--force")
    options = Dummy(**found)
    assert (options.dummy, options.words, options.output) == (3, ("x", "y"), Path("o"))
    assert options.force
    assert not options.no_gates


def test_without_arguments_all_have_the_defaults_of_the_class() -> None:
    found = parsed(names=["dummy", "recipe", "backend", "self_draft"])
    assert found == {"recipe": "int8-fused", "backend": (), "self_draft": None, "dummy": None}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--dummy", "0"), "x>=1"),
        (("--self-draft", "0"), "'0' is neither a number of layers nor auto"),
        (("--self-draft", "some"), "'some' is neither a number of layers nor auto"),
        (("--max-ram",), "requires an argument"),
    ],
)
def test_a_wrong_value_is_refused(arguments: tuple[str, ...], error: str) -> None:
    with pytest.raises(click.UsageError, match=error):
        parsed(*arguments)


def test_help_says_what_the_field_says() -> None:
    @click.command()
    @add_options(Dummy)
    def command(**options: Any) -> None:
        raise NotImplementedError

    shown = CliRunner().invoke(command, ["--help"]).output
    assert "--dummy N" in shown
    assert "A new option." in shown
    assert "[default: int8-fused]" in shown
