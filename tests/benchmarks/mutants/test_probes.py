"""Probes stand before the innermost statement of a change, and change nothing else."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from benchmarks.mutants import probe
from benchmarks.mutants.draw import find_modules
from benchmarks.mutants.mutations import Mutation, find_mutations
from benchmarks.mutants.probes import probed

ROOT = Path(__file__).parents[3]


def with_probes(text: str, becomes: str) -> str:
    """A module with probes for what becomes ``becomes``, each as ``RAN``."""
    text = dedent(text)
    mutants = {n: m for n, m in enumerate(find_mutations("m.py", text)) if m.becomes == becomes}
    (number,) = mutants
    found, without = probed(text, mutants)
    assert not without
    return found.replace(
        f"__import__('benchmarks.mutants.probe', fromlist=['ran']).ran({number})", "RAN"
    )


def same(found: str, expected: str) -> bool:
    return ast.dump(ast.parse(found)) == ast.dump(ast.parse(dedent(expected)))


@pytest.mark.parametrize(
    ("statement", "becomes", "expected"),
    [
        ("x = 3", "x = 4", "RAN\n x = 3"),
        ("x += 3", "pass", "RAN\n x += 3"),
        ("x.a: int = 3", "x.a: int = 4", "RAN\n x.a: int = 3"),
        ("g(3)", "pass", "RAN\n g(3)"),
        ("del x[3]", "pass", "RAN\n del x[3]"),
        ("raise ValueError", "pass", "RAN\n raise ValueError"),
        ("return g(3)", "return None", "RAN\n return g(3)"),
        ("if x > 3: y", "if x >= 3: y", "RAN\n if x > 3: y"),
        ("if x: g()", "if x: pass", "if x:\n  RAN\n  g()"),
        ("if x: y\n else: g()", "else: pass", "if x: y\n else:\n  RAN\n  g()"),
        ("while x > 3: y", "while x >= 3: y", "RAN\n while x > 3: y"),
        ("while x: continue", "while x: break", "while x:\n  RAN\n  continue"),
        ("for x in g(3): y", "for x in g(4): y", "RAN\n for x in g(3): y"),
        ("for x in y: g()", "for x in y: pass", "for x in y:\n  RAN\n  g()"),
        ("with g(3): y", "with g(4): y", "RAN\n with g(3): y"),
        ("with y: g()", "with y: pass", "with y:\n  RAN\n  g()"),
        ("yield x + 3", "yield x - 3", "RAN\n yield x + 3"),
        ("[y for y in z if y > 3]", "[y for y in z if y >= 3]", "RAN\n [y for y in z if y > 3]"),
        ("x = lambda: 3", "x = lambda: 4", "RAN\n x = lambda: 3"),
        ("def h(x=3): y", "def h(x=4): y", "RAN\n def h(x=3): y"),
        ("class A(g):\n  x = 3", "x = 4", "class A(g):\n  RAN\n  x = 3"),
        ("try: g()\n except E: y", "try: pass", "try:\n  RAN\n  g()\n except E: y"),
        ("try: y\n except E: g()", "except E: pass", "try: y\n except E:\n  RAN\n  g()"),
        ("try: y\n except* E: g()", "except* E: pass", "try: y\n except* E:\n  RAN\n  g()"),
        (
            "try: y\n except: y\n else: g()",
            "else: pass",
            "try: y\n except: y\n else:\n  RAN\n  g()",
        ),
        ("try: y\n finally: g()", "finally: pass", "try: y\n finally:\n  RAN\n  g()"),
        ("match x:\n  case 1: g()", "case 1: pass", "match x:\n  case 1:\n   RAN\n   g()"),
        (
            "match x:\n  case y if g(3): y",
            "case y if g(4): y",
            "RAN\n match x:\n  case y if g(3): y",
        ),
    ],
)
def test_a_probe_stands_before_each_kind_of_statement(
    statement: str, becomes: str, expected: str
) -> None:
    found = with_probes(f"def f():\n {statement}\n", becomes)
    assert same(found, f"def f():\n {expected}\n")


def test_the_head_of_an_elif_is_run_by_those_that_reach_it() -> None:
    text = """
    def f(x):
        if x > 1:
            return 1
        elif x > 2:
            return 2
    """
    expected = """
    def f(x):
        if x > 1:
            return 1
        else:
            RAN
            if x > 2:
                return 2
    """
    assert same(with_probes(text, "elif x >= 2:"), expected)


def test_a_line_of_a_statement_of_several_lines() -> None:
    text = "async def f(x):\n    await g(\n        x,\n        3,\n    )\n"
    assert same(with_probes(text, "4,"), "async def f(x):\n    RAN\n    await g(x, 3)\n")


MODULE = '''
"""A module."""
from __future__ import annotations
LEAST = 3
def f(x=4):
    """A docstring alone."""
class A:
    size: int = 5
    def g(self): return LEAST
    @marked(6)
    def h(self, x=7):
        return x
'''


@pytest.mark.parametrize(
    ("becomes", "functions"),
    [
        ("LEAST = 2", "fgh"),
        ("def f(x=3):", "f"),
        ("size: int = 6", "gh"),
        ("def h(self, x=8):", "h"),
    ],
)
def test_what_runs_at_the_import_counts_for_the_functions_that_may_read_it(
    becomes: str, functions: str
) -> None:
    found = with_probes(MODULE, becomes)
    compile(found, "m.py", "exec")  # what a module takes from the future still stands first
    defined = [each for each in ast.walk(ast.parse(found)) if isinstance(each, ast.FunctionDef)]
    marked = [
        each.name
        for each in defined
        if ast.unparse(each.body[-1 if each.name == "f" else 0]) == "RAN"
    ]
    assert marked == list(functions)
    assert found.count("RAN") == len(functions)
    docstring = next(ast.get_docstring(each) for each in defined if each.name == "f")
    assert docstring == "A docstring alone."


def test_no_probe_stands_in_a_module_without_functions() -> None:
    text = "LEAST = 3\nMOST = 4\n"
    mutants = dict(enumerate(find_mutations("m.py", text)))
    assert probed(text, mutants) == (text, set(mutants))


def test_probes_of_several_mutants_of_a_body_stand_where_they_belong() -> None:
    text = "def f(x):\n    y = x + 1\n    g(y)\n    return y - x\n"
    mutants = dict(enumerate(find_mutations("m.py", text)))
    found, _ = probed(text, mutants)
    for number, mutation in mutants.items():
        lines = found.splitlines()
        at = next(n for n, line in enumerate(lines) if f".ran({number})" in line)
        after = next(line for line in lines[at:] if "__import__" not in line)
        assert after.strip() == mutation.line


def test_every_module_of_a_room_compiles_with_probes() -> None:
    modules = find_modules(ROOT, ["optc/runtime/loop", "optc/passes/numerics"])
    assert len(modules) > 20
    for module in modules:
        text = (ROOT / module).read_text()
        found, _ = probed(text, dict(enumerate(find_mutations(module, text))))
        assert "__import__" in found or not find_mutations(module, text), module
        compile(found, module, "exec")


def test_a_probe_notes_each_test_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "RAN", tmp_path / "ran.txt")
    monkeypatch.setattr(probe, "_noted", set())
    monkeypatch.setattr(os, "open", None)  # as a test may do
    for test in ("a.py::test[x (y)] (setup)", "a.py::test[x (y)] (call)", "b.py::test (call)"):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", test)
        probe.ran(7)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    probe.ran(7)
    assert probe.RAN.read_text() == "7\ta.py::test[x (y)]\n7\tb.py::test\n"


def test_probes_change_nothing_but_say_who_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def f(x):\n    if x > 1:\n        return x * 2\n    return x + 3\n"
    mutants = {
        n: m for n, m in enumerate(find_mutations("m.py", text)) if "return None" in m.becomes
    }
    found, _ = probed(text, mutants)
    ran: list[Mutation] = []
    monkeypatch.setattr(probe, "ran", lambda number: ran.append(mutants[number]))
    module: dict[str, Any] = {}
    exec(compile(found, "m.py", "exec"), module)
    assert [module["f"](1), module["f"](2)] == [4, 4]
    assert [each.lineno for each in ran] == [4, 3]
