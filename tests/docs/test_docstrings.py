"""Docstrings name things and say what is done; they do not ask."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_KINDS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_ASKS = re.compile(r"(What|How|Which|Where|Who|Whether)\b")


def asking(path: Path) -> list[str]:
    """Docstrings of a module that open with a question word."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = ast.get_docstring(node) if isinstance(node, _KINDS) else None
        if text and _ASKS.match(text):
            found.append(f"{path.relative_to(ROOT)}: {text.splitlines()[0]}")
    return found


def test_no_docstring_opens_with_a_question_word() -> None:
    modules = [
        path
        for folder in ("optc", "passes", "backends", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert len(modules) > 1000
    assert [one for path in modules for one in asking(path)] == []


def test_what_asks() -> None:
    assert _ASKS.match("Whether it fits.")
    assert not _ASKS.match("Whatever it is.")
