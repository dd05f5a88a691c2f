"""Exit codes, error messages and the JSON frame, whatever the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from optc import registry
from tests.cli.conftest import Optc

OPTC = str(Path(sys.executable).with_name("optc"))


def test_help_lists_every_command(optc: Optc) -> None:
    outcome = optc("--help")
    assert outcome.code == 0
    for name in [
        "compile",
        "run",
        "bench",
        "eval",
        "inspect",
        "verify",
        "recipes",
        "passes",
        "backends",
        "targets",
    ]:
        assert f"  {name} " in outcome.out


def test_version(optc: Optc) -> None:
    assert optc("--version").out.startswith("optc 0.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["comple"], "No such command 'comple'"),
        (["compile"], "Missing argument 'MODEL'"),
        (["compile", "m", "--frobnicate"], "No such option '--frobnicate'"),
        (["compile", "m", "--max-context", "0"], "0 is not in the range x>=1"),
        (["run", "a"], "Missing option '--prompt'"),
        (["run", "a", "--prompt", "x", "--max-tokens", "many"], "'many' is not a valid integer"),
    ],
)
def test_wrong_usage_is_exit_code_2(optc: Optc, arguments: list[str], message: str) -> None:
    outcome = optc(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("error: optc")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err
    outcome = optc(*arguments, "--json")
    assert outcome.code == 2
    error = outcome.json["error"]
    assert set(error) == {"kind", "message", "where", "hint"}
    assert error["kind"] == "input"
    assert message in error["message"]


def test_a_bug_shows_its_traceback_and_exits_with_70(
    optc: Optc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode() -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(registry, "backend_names", explode)
    outcome = optc("backends")
    assert outcome.code == 70
    assert "Traceback" in outcome.err
    assert "internal error: ZeroDivisionError: by zero" in outcome.err
    outcome = optc("backends", "--json")
    assert outcome.code == 70
    assert outcome.json["error"]["kind"] == "internal"


def test_interruption_is_exit_code_130(optc: Optc, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "backend_names", interrupt)
    outcome = optc("backends")
    assert outcome.code == 130
    assert "Traceback" not in outcome.err


def test_a_missing_compile_package_says_how_to_get_it(
    optc: Optc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise ModuleNotFoundError("No module named 'onnx_ir'", name="onnx_ir")

    monkeypatch.setattr(registry, "pass_groups", absent)
    outcome = optc("passes")
    assert outcome.code == 3
    assert "the package 'onnx_ir' is not installed (pip install 'optc[compile]')" in outcome.err


def test_the_installed_command_runs_and_starts_without_compile_packages() -> None:
    done = subprocess.run([OPTC, "targets", "--json"], capture_output=True, check=True)
    assert done.stdout.startswith(b'{"schema": "optc.targets.v1"')
    forbid = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'onnx', 'onnx_ir', 'tvm', 'pydantic', 'yaml'):\n"
        "    sys.modules[name] = None\n"
        "from optc.cli.main import run\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    for arguments, code in ((["--help"], 0), (["run", "absent", "--prompt", "x"], 2)):
        done = subprocess.run([sys.executable, "-c", forbid, *arguments], capture_output=True)
        assert done.returncode == code, done.stderr.decode()


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([OPTC, "targets"], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == b""
