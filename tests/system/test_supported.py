"""On other systems than Linux, the first use of optc says that it does not run there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import optc
from optc.errors import UnavailableError
from optc.system.supported import check_system

ROOT = Path(__file__).parents[2]
NAMES = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows", "freebsd14": "freebsd14"}
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
    with pytest.raises(UnavailableError, match=f"optc runs on Linux, and this is {name} "):
        check_system()


@pytest.mark.parametrize("system", ["darwin", "win32"])
@pytest.mark.parametrize(
    "use", ["load('a')", "compile('a')", "plan('a')", "plan_ladder('a')", "Engine"]
)
def test_the_library_says_so_where_it_is_first_used(system: str, use: str) -> None:
    ended = run(f"import optc; optc.SamplingParams; optc.{use}", system)
    assert f"optc runs on Linux, and this is {NAMES[system]}" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize("system", ["darwin", "win32"])
@pytest.mark.parametrize("command", ["run", "compile", "list", "--help"])
def test_commands_say_so(system: str, command: str) -> None:
    code = "import click.globals, click.core\nfrom optc.cli.main import run\n"
    ended = run(f"{code}sys.exit(run(sys.argv[1:]))", system, command)
    assert ended.returncode == UnavailableError.exit_code
    message = f"error: optc runs on Linux, and this is {NAMES[system]} (use a container"
    assert ended.stderr.startswith(message)
    assert ended.stderr.count("\n") == 1


def test_the_version_is_told_everywhere() -> None:
    ended = run("from optc.cli.main import main; main()", "darwin", "--version")
    assert ended.stdout == f"optc {optc.__version__}\n"
