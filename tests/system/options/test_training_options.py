"""Options of training: each is documented in its class and in docs/cli.md."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

from optc.cli.commands import distill, qat
from optc.system.options import CompileOptions
from optc.system.options.option import flag_name, options_of
from optc.system.options.training_options import DistillOptions, QatOptions, TrainingOptions

PAGE = Path(__file__).parents[3] / "docs/cli.md"
COMMANDS = {DistillOptions: distill.command, QatOptions: qat.command}


@pytest.mark.parametrize("kind", COMMANDS)
def test_every_field_is_an_option_and_documented(kind: type[Any]) -> None:
    names = [field.name for field in fields(kind)]
    assert list(options_of(kind)) == names
    texts = (TrainingOptions.__doc__ or "") + (kind.__doc__ or "")
    assert re.findall(r"^        (\w+): ", texts, re.M) == names
    flags = {p.name for p in COMMANDS[kind].params if isinstance(p, click.Option)}
    assert flags == {*names, "as_json"}


def test_the_page_lists_those_that_a_compile_has_not() -> None:
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("\n## distill and qat\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `(-[-\w]+)", section, re.M))
    options = options_of(DistillOptions) | options_of(QatOptions)
    own = {one.short or flag_name(name) for name, one in options.items()}
    shared = {flag_name(name) for name in options_of(CompileOptions)}
    as_there = set(re.findall(r"`(--[-\w]+)`", section.partition("\n|")[0]))
    assert listed | as_there == own
    assert as_there <= shared
