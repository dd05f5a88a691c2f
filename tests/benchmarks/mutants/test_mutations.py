"""Mutations: what is changed, what is left alone, and which lines are drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from benchmarks.mutants import draw as drawing
from benchmarks.mutants.mutations import find_mutations
from tests.support import tests_of as mapping

ROOT = Path(__file__).parents[3]


def changes(text: str) -> set[str]:
    """What the first changed line of each mutant becomes."""
    return {mutation.becomes for mutation in find_mutations("m.py", dedent(text))}


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("x = a < b", {"x = a <= b", "x = a >= b"}),
        ("x = a is not b", {"x = a is b"}),
        ("x = (a) not in (b)", {"x = (a) in (b)"}),
        ("x = a and (b) and c", {"x = a or (b) and c", "x = a and (b) or c"}),
        ("x = a - b * c", {"x = a + b * c", "x = a - b // c"}),
        ("x = -a", {"x = a"}),
        ("x = not a", {"x = a"}),
        ("x = 3", {"x = 4", "x = 2"}),
        ("x = 0", {"x = 1", "x = (-1)"}),
        ("x = a[0]", {"x = a[1]"}),
        ("x = a[1]", {"x = a[2]", "x = a[0]"}),
        ("x = 0.5", {"x = 1.5", "x = (-0.5)"}),
        ("x = 1e30", set()),
        ("x = True", {"x = False"}),
        ("x = a.split(b, 1)[0]", {"x = a.split(b, 0)[0]", "x = a.split(b, 1)[1]"}),
        (
            "x = a().rsplit(b, 1)[-1]",
            {"x = a().rsplit(b, 0)[-1]", "x = a().rsplit(b, 1)[1]"}
            | {"x = a().rsplit(b, 1)[-2]", "x = a().rsplit(b, 1)[-0]"},
        ),
        (
            "x = a.split(b, 1)[-1]",
            {"x = a.split(b, 2)[-1]", "x = a.split(b, 0)[-1]", "x = a.split(b, 1)[1]"}
            | {"x = a.split(b, 1)[-2]", "x = a.split(b, 1)[-0]"},
        ),
        ("x = operand(a, 0)", {"x = operand(a, 1)"}),
        ("x = operand(a, 1)", {"x = operand(a, 2)", "x = operand(a, 0)"}),
        ("_CHUNK = 1 << 20", set()),
        ("TOKENS_AT_ONCE = 64", set()),
        (
            "CHUNKED, LEFT_ALONE = 1, a[0]",
            {"CHUNKED, LEFT_ALONE = 2, a[0]"}
            | {"CHUNKED, LEFT_ALONE = 0, a[0]", "CHUNKED, LEFT_ALONE = 1, a[1]"},
        ),
        ("x += a", {"x -= a", "pass"}),
        ("f(a)", {"pass"}),
        ("x.a = b", {"pass"}),
        ("del x[a]", {"pass"}),
        ("raise ValueError(3)", {"pass"}),
        ("raise", {"pass"}),
        ("x = a if f() else b", {"x = a if not (f()) else b"}),
        ("x = [a for a in b if a]", {"x = [a for a in b if not (a)]"}),
        ("x = 'é' + a + b", {"x = 'é' - a + b", "x = 'é' + a - b"}),
    ],
)
def test_each_kind_of_change(line: str, becomes: set[str]) -> None:
    assert changes(line) == becomes


def test_functions_and_loops() -> None:
    text = """
    def f(a=1) -> bool:
        while a:
            if a and b: break
            continue
        return g(a)
    def h(a):
        return a
    """
    assert changes(text) == {
        "def f(a=2) -> bool:",
        "def f(a=0) -> bool:",
        "while not (a):",
        "if a or b: break",
        "if not (a and b): break",
        "if a and b: continue",
        "break",
        "return not (g(a))",
        "return None",
    }


def test_what_no_test_could_see_is_left_alone() -> None:
    text = '''
    """A docstring: 1 + 1."""
    if TYPE_CHECKING:
        x = 1
    @dataclass(frozen=True)
    class A(Base):
        a: Literal[3]
        def __repr__(self):
            return 1 + 2
        @abc.abstractmethod
        def f(self):
            return 1 + 2
        def __init__(self, a: X[1]) -> X[2]:
            self.a = a
    class B(Protocol[T]):
        x = 1
    assert 1 < 2
    log.info(3)
    f"{1 + 2}"
    zip(strict=True, log_level=1)
    Union = int | A | None
    raise NotImplementedError(1)
    if __name__ == "__main__":
        f(1)
    '''
    assert changes(text) == {"pass"}  # the call of zip
    assert len(find_mutations("m.py", dedent(text))) == 1


def test_a_change_of_one_line_among_many_is_found_and_applied() -> None:
    text = "def f():\n    return (1 +  # é\n        2)\n"
    changed = [m for m in find_mutations("m.py", text) if m.becomes == "3)"]
    assert [(m.lineno, m.scope, m.line, m.kind) for m in changed] == [(3, "f", "2)", "constant")]
    assert (
        changed[0].apply(text.encode()).decode() == "def f():\n    return (1 +  # é\n        3)\n"
    )


def test_an_equivalent_mutant_of_two_lines_that_are_alike_is_found_by_its_scope() -> None:
    text = "class A:\n    def f(self):\n        g(1)\n    def h(self):\n        g(1)\n"
    first, second = (m for m in find_mutations("m.py", text) if m.becomes == "g(2)")
    assert (first.scope, second.scope) == ("A.f", "A.h")
    named = drawing.Equivalent("m.py", "g(1)", "g(2)", "why", scope="A.h")
    assert [named.names(first), named.names(second)] == [False, True]
    anywhere = drawing.Equivalent("m.py", "g(1)", "g(2)", "why")
    assert anywhere.names(first)
    assert not anywhere.names(replace(first, becomes="g(0)"))


def test_every_change_of_this_repository_compiles() -> None:
    for module in drawing.find_modules(ROOT, ["optc/runtime/speculative"]):
        text = (ROOT / module).read_text()
        for mutation in find_mutations(module, text):
            compile(mutation.apply(text.encode()), module, "exec")
            assert mutation.line != mutation.becomes


def test_a_seed_draws_the_same_lines_and_each_at_most_once() -> None:
    lines = drawing.mutations_by_line(ROOT, ["optc/runtime/metrics/quantiles.py"])
    drawn = drawing.draw(lines, 10, seed=3)
    assert drawn == drawing.draw(lines, 10, seed=3) != drawing.draw(lines, 10, seed=4)
    assert len({mutation.lineno for mutation in drawn}) == 10
    assert len(drawing.draw(lines, 10**6, seed=3)) == len(lines)
    assert len(drawing.draw(lines, None, seed=3)) == sum(map(len, lines))


def test_paths_outside_are_refused() -> None:
    for path in ("optc/no_such_module.py", "/etc"):
        with pytest.raises(FileNotFoundError, match=f"no module or folder .* is at {path}"):
            drawing.find_modules(ROOT, [path])


def test_mirrored_tests_are_found_behind_symbolic_links() -> None:
    assert mapping.mirrored_test("optc/runtime/loop/core.py") == "tests/runtime/loop/test_core.py"
    (module,) = drawing.find_modules(ROOT, ["optc/passes/numerics/affine.py"])
    assert mapping.tests_of(ROOT, module)[0] == "tests/passes/numerics/test_affine.py"


def test_the_table_of_tests_elsewhere_names_what_is_there() -> None:
    assert [m for m in mapping.TESTED_ELSEWHERE if not (ROOT / m).is_file()] == []
    folders = mapping.FOLDERS_TESTED_ELSEWHERE
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []
    named = [*mapping.TESTED_ELSEWHERE.values(), *folders.values()]
    tests = {test for some in named for test in some}
    assert [test for test in sorted(tests) if not (ROOT / test).is_file()] == []


def test_equivalent_mutants_are_still_mutants_and_have_reasons() -> None:
    """Where a module has a line more than once, its scope says which one is meant."""
    entries = drawing.read_equivalent(ROOT / drawing.EQUIVALENT)
    modules = {entry.module for entry in entries}
    found = [m for module in modules for m in find_mutations(module, (ROOT / module).read_text())]
    for entry in entries:
        assert len([m for m in found if entry.names(m)]) == 1, entry
        assert entry.reason
