"""The core asks passes for what they are: it spells none of their names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from optc.ir.pipeline import registry

CORE = Path(__file__).parents[2] / "optc"
#: Rooms behind links, which are not the core.
OTHERS = {"passes", "backends", "recipes"}
#: Names that are words of another meaning, too.
WORDS = {"adapters", "calibrate", "rotate", "simplify", "smooth"}


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Texts in the code of a module, docstrings left out."""
    tree = ast.parse(path.read_text("utf-8"))
    said = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.lineno, node.value


def test_no_text_of_the_core_has_a_pass_s_name() -> None:
    names = sorted(registry.passes().keys() - WORDS, key=len, reverse=True)
    spelled = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, names))})(?![\w-])")
    files = [path for path in CORE.rglob("*.py") if path.relative_to(CORE).parts[0] not in OTHERS]
    assert len(files) > 500
    found = [
        f"{path.relative_to(CORE)}:{line}: {match[0]}"
        for path in files
        for line, text in literals(path)
        if (match := spelled.search(text))
    ]
    assert found == []
