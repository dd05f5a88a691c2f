"""Exit codes, error messages and the JSON frame, whatever the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from optc import registry
from optc.errors import EngineError
from optc.ir.pipeline import registry as pass_registry
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


def test_without_arguments_the_help_is_a_result(optc: Optc) -> None:
    outcome = optc()
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == optc("--help").out
    assert outcome.out.startswith("Usage: optc")


def test_version(optc: Optc) -> None:
    assert optc("--version").out.startswith("optc 0.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["comple"], "No such command 'comple'"),
        (["compile"], "Missing argument 'MODEL'"),
        (["compile", "m", "--frobnicate"], "No such option '--frobnicate'"),
        (["--frobnicate"], "No such option '--frobnicate'"),
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


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["rnu"], "optc: No such command 'rnu' (did you mean 'run'?)"),
        (["comple", "m"], "optc: No such command 'comple' (did you mean 'compile'?)"),
        (
            ["run", "a", "--promt", "x"],
            "optc run: No such option '--promt' (did you mean '--prompt'?)",
        ),
        (
            ["compile", "m", "--ouput", "x"],
            "optc compile: No such option '--ouput' (did you mean '--output'?)",
        ),
        (["--verison"], "optc: No such option '--verison' (did you mean '--version'?)"),
        (
            ["run", "a", "--xyz"],
            "optc run: No such option '--xyz' ('optc run --help' shows the usage)",
        ),
        (
            ["export", "a"],
            "optc export: Missing option '--format'. Choose from: gguf, compressed-tensors, hf "
            "('optc export --help' shows the usage)",
        ),
    ],
)
def test_what_was_mistyped_is_suggested(optc: Optc, arguments: list[str], error: str) -> None:
    assert optc(*arguments).err == f"error: {error}\n"


def test_a_command_like_no_other_lists_them_all(optc: Optc) -> None:
    assert "No such command 'xyzzy' (one of compile, plan, distill, qat, run," in optc("xyzzy").err


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


def test_an_engine_that_failed_shows_the_traceback_of_its_cause(
    optc: Optc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise EngineError("the engine failed") from ZeroDivisionError("by zero")

    monkeypatch.setattr(registry, "backend_names", fail)
    outcome = optc("backends", "--json")
    assert outcome.code == 70
    assert outcome.json["error"]["kind"] == "engine"
    assert "ZeroDivisionError: by zero" in outcome.err


def test_an_end_of_file_is_a_bug_and_no_interrupt(
    optc: Optc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end() -> None:
        raise EOFError("the child has gone")

    monkeypatch.setattr(registry, "backend_names", end)
    outcome = optc("backends", "--json")
    assert outcome.code == 70
    assert outcome.json["error"]["message"] == "EOFError: the child has gone"


def test_interruption_is_exit_code_130(optc: Optc, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "backend_names", interrupt)
    outcome = optc("backends")
    assert (outcome.code, outcome.out, outcome.err.strip()) == (130, "", "interrupted")
    outcome = optc("backends", "--json")
    assert (outcome.code, outcome.err.strip()) == (130, "interrupted")
    error = {"kind": "interrupted", "message": "interrupted", "where": "", "hint": ""}
    assert outcome.json["error"] == error


TERMINATED_TWICE = """
import os, signal, sys
from optc import registry
from optc.ir.pipeline import registry as pass_registry
from optc.errors import EngineError
from optc.cli.main import main

def names():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        print("cleaned up", file=sys.stderr)

registry.backend_names = names
main()
"""


@pytest.mark.parametrize("as_json", [False, True])
def test_termination_is_exit_code_143_after_cleaning_up(as_json: bool) -> None:
    command = [sys.executable, "-c", TERMINATED_TWICE, "backends", *["--json"] * as_json]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (143, "cleaned up\nterminated\n")
    if as_json:
        assert json.loads(done.stdout)["error"]["kind"] == "terminated"
    else:
        assert done.stdout == ""


def test_a_missing_compile_package_says_how_to_get_it(
    optc: Optc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise ModuleNotFoundError("No module named 'onnx_ir'", name="onnx_ir")

    monkeypatch.setattr(pass_registry, "pass_groups", absent)
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


def test_the_package_is_the_command_too_and_shells_can_ask_for_completions() -> None:
    command = [sys.executable, "-m", "optc"]
    done = subprocess.run([*command, "--version"], capture_output=True, check=True)
    assert done.stdout.startswith(b"optc 0.")
    asked = {**os.environ, "_OPTC_COMPLETE": "bash_complete", "COMP_WORDS": "optc ver"}
    done = subprocess.run(command, capture_output=True, env={**asked, "COMP_CWORD": "1"})
    assert (done.returncode, done.stdout) == (0, b"plain,verify\n")
