"""On systems that optc does not run on, its first use says so; macOS compiles nothing."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

import optc
from optc.errors import UnavailableError
from optc.system.needs import compile_packages
from optc.system.supported import check_system

ROOT = Path(__file__).parents[2]
NAMES = {
    "darwin": "macOS on x86_64",
    "win32": "Windows",
    "cygwin": "Windows",
    "freebsd14": "freebsd14",
}
RUNS_ON = "optc runs on Linux and on macOS of Apple silicon, and this is"
#: As if the process ran on the system that its first argument names.
ELSEWHERE = """
import sys
system, *sys.argv[1:] = sys.argv[1:]
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "termios", "pwd"):
            raise ModuleNotFoundError(name)
import click
sys.meta_path.insert(0, Missing())
sys.platform = system
import platform
platform.machine = lambda: "x86_64"
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ELSEWHERE + code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_this_system_is_one() -> None:
    check_system()


@pytest.mark.parametrize(("system", "name"), NAMES.items())
def test_other_systems_are_named(system: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    with pytest.raises(UnavailableError, match=f"{RUNS_ON} {name} "):
        check_system()


def test_macos_of_apple_silicon_runs_and_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    check_system()
    for use in (lambda: check_system(compiling=True), compile_packages().__enter__):
        with pytest.raises(
            UnavailableError, match="optc compiles on Linux, and this is macOS"
        ) as e:
            use()
        assert "--target arm64-macos-dotprod" in e.value.hint


@pytest.mark.parametrize("system", ["darwin", "win32"])
@pytest.mark.parametrize(
    "use", ["load('a')", "compile('a')", "plan('a')", "plan_ladder('a')", "Engine"]
)
def test_the_library_says_so_where_it_is_first_used(system: str, use: str) -> None:
    ended = run(f"import optc; optc.SamplingParams; optc.{use}", system)
    assert f"{RUNS_ON} {NAMES[system]}" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize("system", ["darwin", "win32"])
@pytest.mark.parametrize("command", ["run", "compile", "list", "--help"])
def test_commands_say_so(system: str, command: str) -> None:
    code = "import click.globals, click.core\nfrom optc.cli.main import run\n"
    ended = run(f"{code}sys.exit(run(sys.argv[1:]))", system, command)
    assert ended.returncode == UnavailableError.exit_code
    message = f"error: {RUNS_ON} {NAMES[system]} (use a container"
    assert ended.stderr.startswith(message)
    assert ended.stderr.count("\n") == 1


def test_the_version_is_told_everywhere() -> None:
    ended = run("from optc.cli.main import main; main()", "darwin", "--version")
    assert ended.stdout == f"optc {optc.__version__}\n"
