"""The mutation tool: what it changes, what it leaves alone, and what it says of a mutant."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from benchmarks.mutants import __main__ as command
from benchmarks.mutants import draw as drawing
from benchmarks.mutants.journal import Journal
from benchmarks.mutants.mutations import find_mutations
from benchmarks.mutants.server import Answer
from benchmarks.mutants.trials import _Copy, _threads
from tests.support import tests_of as mapping

ROOT = Path(__file__).parents[2]


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


MODULE = """\
def double(x):
    return x * 2

def smaller(a, b):
    return a < b

def same(x):
    return x - 0
"""
ENDLESS = """\
def empty(items):
    while len(items) != 0:
        items.pop()
"""
TEST = """\
from optc.a import double, same, smaller

def test_it():
    assert double(3) == 6
    assert smaller(1, 2)
    assert same(1) == 1
"""
ENDLESS_TEST = """\
from optc.endless import empty

def test_it():
    empty([1])
"""
EQUIVALENT = """\
[[mutant]]
module = "optc/a.py"
line = "return x - 0"
becomes = "return x + 0"
reason = "for a test"
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small repository with the tool in it."""
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / "benchmarks/mutants", root / "benchmarks/mutants")
    files = {
        "optc/__init__.py": "",
        "optc/a.py": MODULE,
        "optc/b.py": "X = 1\n",
        "optc/endless.py": ENDLESS,
        "optc/package/c.py": "def larger(a, b):\n    return a > b\n",
        "tests/test_a.py": TEST,
        "tests/package/test_c.py": "from optc.package.c import larger\n"
        "def test_it():\n    assert larger(2, 1) is not None\n",
        "tests/package/test_strong.py": "from optc.package.c import larger\n"
        "def test_it():\n    assert larger(2, 1)\n",
        "tests/package/test_skipped.py": "import pytest\n"
        "pytest.skip('', allow_module_level=True)\n",
        "tests/test_endless.py": ENDLESS_TEST,
        "benchmarks/mutants_equivalent.toml": EQUIVALENT,
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    return root


@pytest.fixture(scope="module")
def result(repository: Path) -> dict[str, Any]:
    return command.run(repository, ["optc/a.py", "optc/b.py"], None, seed=0, jobs=1)


def becomes(result: dict[str, Any], verdict: str) -> list[str]:
    return [mutant["becomes"] for mutant in result[verdict]]


def test_mutants_get_the_verdicts_that_they_deserve(result: dict[str, Any]) -> None:
    assert sorted(becomes(result, "killed")) == [
        *("return None", "return None", "return None", "return a >= b"),
        *("return x * 1", "return x * 3", "return x - (-1)", "return x - 1", "return x // 2"),
    ]
    assert {mutant["by"] for mutant in result["killed"]} == {"tests/test_a.py::test_it"}
    assert becomes(result, "survived") == ["return a <= b"]
    assert sorted(becomes(result, "not_tested")) == ["X = 0", "X = 2"]
    assert becomes(result, "equivalent") == ["return x + 0"]
    assert result["equivalent"][0]["reason"] == "for a test"
    assert result["modules_without_tests"] == ["optc/b.py"]
    assert sum(result["counts"].values()) == result["drawn"] == 13


def test_survivors_are_tried_by_the_other_tests_of_their_package(repository: Path) -> None:
    result = command.run(repository, ["optc/package"], None, seed=0, jobs=1, own=False)
    assert becomes(result, "killed") == ["return None"]
    assert becomes(result, "killed_by_others") == ["return a <= b"]
    assert result["killed_by_others"][0]["by"] == "tests/package/test_strong.py::test_it"
    assert becomes(result, "survived") == ["return a >= b"], "nothing tries equal numbers apart"
    assert sum(result["counts"].values()) == result["drawn"] == 3


def test_a_run_goes_on_where_it_was_ended(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, usual = tmp_path / "journal", _Copy.run
    asked: list[Sequence[str]] = []

    def counted(copy: _Copy, tests: Sequence[str], limit_s: float, verbose: bool = False) -> Answer:
        asked.append(tests)
        return usual(copy, tests, limit_s, verbose)

    monkeypatch.setattr(_Copy, "run", counted)

    def again() -> tuple[dict[str, list[str]], int]:
        before, journal = len(asked), Journal(repository, kept)
        found = command.run(
            repository, ["optc/package"], None, seed=0, jobs=1, own=False, journal=journal
        )
        return {name: becomes(found, name) for name in ("killed", "survived")}, len(asked) - before

    whole, runs = again()
    assert runs == 8, "three mutants and two survivors; a test, and two beside it"
    assert all(asked), "without files pytest runs all there are"
    assert again() == (whole, 0)
    kept.write_text("".join(kept.read_text().splitlines(keepends=True)[:-2]) + '{"key": "half')
    assert again() == (whole, 2)
    test = repository / "tests/package/test_strong.py"
    text = test.read_text()
    test.write_text(text + "    assert not larger(1, 1)\n")
    changed, repeated = again()
    test.write_text(text)
    assert not changed["survived"]
    assert repeated == 3, "the module's own test did not change"


def test_a_run_that_is_ended_begins_nothing_more() -> None:
    begun: list[int] = []
    started, ended = threading.Event(), threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        started.set()
        ended.wait(30)

    def run() -> None:
        with _threads(1) as pool:
            futures = [pool.submit(work, number) for number in range(3)]
            futures[-1].add_done_callback(lambda _: ended.set())  # once it is cancelled
            started.wait()
            raise SystemExit(143)

    with pytest.raises(SystemExit):
        run()
    assert begun == [0]


def test_endless_mutants_are_ended(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.mutants.trials.LEAST_S", 1.0)
    monkeypatch.setattr("benchmarks.mutants.trials.TIMES", 0.0)
    endless = find_mutations("optc/endless.py", ENDLESS)[-1:]
    monkeypatch.setattr(command, "mutations_by_line", lambda *_: [endless])
    result = command.run(repository, ["optc/endless.py"], None, seed=0, jobs=1)
    assert becomes(result, "killed_by_timeout") == ["pass"]


def test_the_repository_itself_is_not_changed(repository: Path, result: dict[str, Any]) -> None:
    assert (repository / "optc/a.py").read_text() == MODULE


def test_the_command_prints_survivors_and_modules_without_tests(
    result: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(command, "run", lambda *_, **__: result)
    assert command.main(["--output", str(tmp_path / "result.json")]) == 0
    printed = capsys.readouterr().out
    assert (
        "survived: optc/a.py:5  smaller  comparison\n  - return a < b\n  + return a <= b\n"
        in printed
    )
    assert "not tested: optc/b.py, 2 drawn; there is no tests/test_b.py" in printed
    assert '"seed": 0' in (tmp_path / "result.json").read_text()


def test_tests_that_fail_without_a_mutant_stop_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "ROOT", repository)
    (repository / "tests/test_b.py").write_text("def test_it():\n    assert 1 == 2\n")
    assert command.main(["optc/b.py", "--jobs", "1"]) == 2
    error = capsys.readouterr().err
    assert "error: tests/test_b.py does not pass without a mutant" in error
    assert "assert 1 == 2" in error
