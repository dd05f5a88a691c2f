"""Each benchmark says how it is called, and benchmarks/README.md lists it at its folder."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
MODULES = sorted((ROOT / "benchmarks").rglob("*.py"))


def called_as(path: Path) -> list[str]:
    """What the docstring of a module says after ``python -m``."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.findall(r"python -m (benchmarks[\w.]+)", docstring)


COMMANDS = [path for path in MODULES if called_as(path)]


def dotted(path: Path) -> str:
    """How Python calls a module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")


@pytest.mark.parametrize("path", COMMANDS, ids=dotted)
def test_a_command_is_called_by_the_name_of_its_module(path: Path) -> None:
    assert set(called_as(path)) == {dotted(path)}


def test_the_page_lists_every_command_at_its_folder() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", PAGE, re.MULTILINE)
    listed = {
        f"benchmarks.{folder}" + (f".{name}" if name else "")
        for folder, names in rows
        for name in re.findall(r"`(\w+)`", names) + ([""] if names.startswith("itself") else [])
    }
    assert listed == {dotted(path) for path in COMMANDS}


def test_everything_that_parses_arguments_is_a_command() -> None:
    parsing = [path for path in MODULES if "ArgumentParser(" in path.read_text(encoding="utf-8")]
    inner = {path for path in parsing if "workers" in path.parts}
    assert [dotted(path) for path in parsing if path not in {*COMMANDS, *inner}] == []
