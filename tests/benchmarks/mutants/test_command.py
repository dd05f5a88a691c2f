"""The mutation tool says of each mutant of a small repository what it deserves."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutants import __main__ as command
from benchmarks.mutants import probing
from benchmarks.mutants.journal import Journal
from benchmarks.mutants.mutations import find_mutations
from benchmarks.mutants.server import Answer
from benchmarks.mutants.trials import Copy, _threads
from benchmarks.mutants.verdicts import Others

ROOT = Path(__file__).parents[3]

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
        "benchmarks/__init__.py": "",
        "optc/a.py": MODULE,
        "optc/b.py": "X = 1\n",
        "optc/endless.py": ENDLESS,
        "optc/package/c.py": "def larger(a, b):\n    return a > b\n",
        "tests/test_a.py": TEST,
        "tests/package/test_c.py": "from optc.package.c import larger\n"
        "def test_it():\n    assert larger(2, 1) is not None\n",
        "tests/elsewhere/test_strong.py": "from optc.package.c import larger\n"
        "def test_it():\n    assert larger(2, 1)\n",
        "tests/elsewhere/test_broken.py": "from optc.package.c import larger\n"
        "def test_it():\n    assert not larger(2, 1)\n",
        "tests/elsewhere/test_other.py": "def test_it():\n    pass\n",
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


#: All tests of the small repository, with time enough for each.
OTHERS = Others(("tests",), 60.0)


def test_survivors_are_tried_by_the_other_tests_that_run_their_line(repository: Path) -> None:
    """That which fails anyway is not asked, and what runs other lines neither."""
    result = command.run(repository, ["optc/package"], None, seed=0, jobs=1, others=OTHERS)
    assert becomes(result, "killed") == ["return None"]
    assert becomes(result, "killed_by_others") == ["return a <= b"]
    assert result["killed_by_others"][0]["by"] == "tests/elsewhere/test_strong.py::test_it"
    assert becomes(result, "survived") == ["return a >= b"], "nothing tries equal numbers apart"
    assert [(each["asked"], each["run_by"]) for each in result["survived"]] == [(1, 1)]
    assert sum(result["counts"].values()) == result["drawn"] == 3


def test_modules_without_tests_of_their_own_are_tried_by_others(repository: Path) -> None:
    """Those of the package where no function of the module could have a probe."""
    result = command.run(repository, ["optc/b.py"], None, seed=0, jobs=1, others=OTHERS)
    assert sorted(becomes(result, "survived")) == ["X = 0", "X = 2"]
    assert not result["not_tested"]
    tests = {"test_a", "package/test_c", "elsewhere/test_strong", "elsewhere/test_other"}
    assert {each["run_by"] for each in result["survived"]} == {len({*tests, "test_endless"})}


def test_a_run_goes_on_where_it_was_ended(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, usual = tmp_path / "journal", Copy.run
    asked: list[Sequence[str]] = []

    def counted(copy: Copy, tests: Sequence[str], limit_s: float, verbose: bool = False) -> Answer:
        asked.append(tests)
        return usual(copy, tests, limit_s, verbose)

    monkeypatch.setattr(Copy, "run", counted)

    def again() -> tuple[dict[str, list[str]], int]:
        before, journal = len(asked), Journal(repository, kept)
        found = command.run(
            repository, ["optc/package"], None, seed=0, jobs=1, others=OTHERS, journal=journal
        )
        return {name: becomes(found, name) for name in ("killed", "survived")}, len(asked) - before

    whole, runs = again()
    assert runs == 8, "a test, three mutants, one survivor, and another three times"
    assert all(asked), "without tests pytest runs all there are"
    with monkeypatch.context() as patch:
        patch.setattr(probing, "_run", None)  # which tests run a line is known
        assert again() == (whole, 0)
        lines = kept.read_text().splitlines(keepends=True)
        kept.write_text("".join(lines[:-2]) + '{"key": "half')
        assert again() == (whole, 4)
        test = repository / "tests/elsewhere/test_strong.py"
        text = test.read_text()
        test.write_text(text + "    assert not larger(1, 1)\n")
        changed, repeated = again()
        test.write_text(text)
    assert not changed["survived"]
    assert repeated == 6, "the module's own test did not change"


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


def test_the_command_says_of_survivors_that_not_all_were_asked(
    result: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (survivor,) = result["survived"]
    for asked in (3, 4):
        survived = {"survived": [survivor | {"asked": asked, "run_by": 4}], "budget_s": 9.0}
        monkeypatch.setattr(command, "run", lambda *_, found=survived, **__: result | found)
        assert command.main([]) == 0
        said = "not all asked: 3 of the 4 others that run it were asked in 9 s"
        assert (said in capsys.readouterr().out) == (asked == 3)


def test_tests_that_fail_without_a_mutant_stop_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "ROOT", repository)
    (repository / "tests/test_b.py").write_text("def test_it():\n    assert 1 == 2\n")
    assert command.main(["optc/b.py", "--jobs", "1"]) == 2
    error = capsys.readouterr().err
    assert "error: tests/test_b.py does not pass without a mutant" in error
    assert "assert 1 == 2" in error
