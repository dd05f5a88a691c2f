"""`CompileOptions` is the one list: what other places say of its fields is checked against it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import click
import pytest

import optc
from optc.cli.commands import compile as compile_command
from optc.cli.commands import plan as plan_command
from optc.system.options import PLANNED, CompileOptions
from optc.system.options.option import flag_name, options_of

PAGE = Path(__file__).parents[3] / "docs/cli.md"
NAMES = {field.name for field in fields(CompileOptions)}


def flags_of(command: click.Command) -> dict[str, list[str]]:
    return {p.name or "": p.opts for p in command.params if isinstance(p, click.Option)}


def test_every_field_is_an_option_and_documented() -> None:
    assert set(options_of(CompileOptions)) == NAMES
    documented = re.findall(r"^        (\w+): ", CompileOptions.__doc__ or "", re.M)
    assert documented == [field.name for field in fields(CompileOptions)]


def test_the_command_line_has_them_all() -> None:
    flags = flags_of(compile_command.command)
    printed = {"as_json", "help", "markdown", "junit"}
    of_tensors = {"dims", "images", "inputs"}  # what decoders have not
    assert set(flags) - printed - of_tensors == NAMES
    assert all(flag_name(name) in flags[name] for name in NAMES)
    own = {"as_json", "help", "backends", "measure", "resident_memory"}
    planned = set(flags_of(plan_command.command)) - own
    assert planned == set(PLANNED)


def test_the_page_of_the_command_line_lists_them_all() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## compile\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([^`]+)` \|", section, re.M)
    usages = [
        f"{one.short or flag_name(name)} {one.metavar}".strip().replace("|", "\\|")
        for name, one in options_of(CompileOptions).items()
    ]
    assert sorted(listed) == sorted(usages)


def test_an_unknown_keyword_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"did you mean eval_text\?"):
        optc.compile(tmp_path, evaltext="t.txt")
    with pytest.raises(TypeError, match="no option 'force'"):
        optc.plan(tmp_path, force=True)
