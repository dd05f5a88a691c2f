"""Log options, ``--config``, and a variable for every option of every command."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from optc.cli.common_options import variable
from optc.cli.main import COMMANDS, cli
from tests.cli.conftest import Optc

RUN = ("--prompt", "hi", "--ignore-eos")


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_variable_of_its_own(name: str) -> None:
    options = [p for p in command(name).params if isinstance(p, click.Option)]
    variables = [p.envvar[0] if isinstance(p.envvar, list) else p.envvar for p in options]
    assert len(set(variables)) == len(options)
    begin = f"OPTC_{name.replace('-', '_').upper()}_"
    assert all(str(one).startswith(begin) for one in variables)
    assert {"--config", "--quiet", "--verbose", "--log-file"} <= {
        o for p in options for o in p.opts
    }


def test_a_command_itself_stays_as_it_is() -> None:
    first, again = command("run"), command("run")
    assert len(first.params) == len(again.params)
    assert [p.envvar for p in first.params] == [p.envvar for p in again.params]


def test_variables_are_named_by_the_flag() -> None:
    option = click.Option(["-o", "--max-ram", "ram"])
    assert variable("compile", option) == "OPTC_COMPILE_MAX_RAM"


def test_the_command_line_goes_before_a_variable_and_that_before_a_file(
    optc: Optc, talker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tokens(*more: object) -> int:
        count: int = optc("run", talker, *RUN, "--json", *more).json["output_tokens"]
        return count

    path = tmp_path / "run.yaml"
    path.write_text("max_tokens: 3\n")
    assert tokens("--config", path) == 3
    monkeypatch.setenv("OPTC_RUN_MAX_TOKENS", "4")
    assert tokens("--config", path) == 4
    assert tokens("--config", path, "--max-tokens", "5") == 5
    monkeypatch.setenv("OPTC_RUN_CONFIG", str(path))
    monkeypatch.delenv("OPTC_RUN_MAX_TOKENS")
    assert tokens() == 3


def test_values_of_a_file(optc: Optc, talker: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    values = {
        "artifact": str(talker),
        "prompt": ["hi", "ho"],
        "logit-bias": {"9": 100, "8": 0.5},
        "max-tokens": 2,
        "ignore-eos": True,
        "stop": "END",
        "json": True,
    }
    path.write_text(json.dumps(values))
    outcome = optc("run", "--config", path)
    assert [result["token_ids"] for result in outcome.json["results"]] == [[9, 9], [9, 9]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-tokns: 3", "there is no option 'max-tokns' of optc run (did you mean 'max-tokens'?)"),
        ("config: x", "there is no option 'config' of optc run"),
        ("- a", "not a mapping from options to values (such as 'max-tokens: 64')"),
        ("1: a", "not a mapping from options to values"),
        ("a: [", "not YAML: "),
        ("!!timestamp x", "not YAML: "),
        ("max-tokens: many", "'many' is not a valid integer"),
        ("temperature: -1", "temperature=-1.0 is not allowed"),
    ],
)
def test_what_is_wrong_with_a_file(
    optc: Optc, talker: Path, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    outcome = optc("run", talker, *RUN, "--config", path)
    assert outcome.code == 2
    assert message in outcome.err


def test_files_that_cannot_be_read(
    optc: Optc, talker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    assert "--config: cannot read" in optc("run", talker, "--config", path).err
    path.write_text("{")
    assert "not JSON: " in optc("run", talker, "--config", path).err
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    (tmp_path / "run.yaml").write_text("max-tokens: 3")
    outcome = optc("run", talker, *RUN, "--config", tmp_path / "run.yaml")
    assert outcome.code == 3
    assert "or write it as JSON in a file named .json" in outcome.err


def test_a_variable_that_is_wrong_is_named(
    optc: Optc, talker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTC_RUN_TOP_P", "high")
    outcome = optc("run", talker, *RUN)
    assert outcome.code == 2
    assert "'high' is not a valid float (the environment variable OPTC_RUN_TOP_P says so)" in (
        outcome.err.replace("'--top-p': ", "")
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("top-p: high", "'high' is not a valid float ({path}, given to --config, says so)"),
        ("config: x.yaml", "{path}: there is no option 'config' of optc run (one of "),
        ("a: [", "{path}: not YAML: "),
    ],
)
def test_a_file_that_is_wrong_is_named(
    optc: Optc, talker: Path, tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    outcome = optc("run", talker, *RUN, "--config", path)
    assert outcome.code == 2
    assert problem.format(path=path) in outcome.err.replace("'--top-p': ", "")
    assert "unicode string" not in outcome.err


def test_errors_are_json_where_a_variable_says_so(
    optc: Optc, talker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTC_RUN_JSON", "1")
    assert optc("run", talker).json["error"]["kind"] == "input"
    assert "text" in optc("run", talker, *RUN).json
    monkeypatch.setenv("OPTC_RUN_JSON", "0")
    assert optc("run", talker).out == ""


def test_a_variable_that_is_no_option_is_warned_of(
    optc: Optc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("OPTC_CACHE", "OPTC_STORE", "OPTC_RUN_TEMPRATURE"):
        monkeypatch.setenv(name, str(tmp_path))  # of all commands, and of another one
    assert optc("backends", "--json").err == ""
    monkeypatch.setenv("OPTC_BACKENDS_JSN", "1")
    monkeypatch.setenv("OPTC_BACKENDS_JSON", "0")
    outcome = optc("backends", "-q")
    assert (outcome.code, outcome.err) == (
        0,
        "warning: OPTC_BACKENDS_JSN is no option of optc backends and has no effect "
        "(did you mean OPTC_BACKENDS_JSON?)\n",
    )
    monkeypatch.delenv("OPTC_BACKENDS_JSN")
    monkeypatch.setenv("OPTC_BACKENDS_Z", "1")
    assert "('optc backends --help' lists the options)" in optc("backends").err


def test_a_variable_of_a_misspelled_command_is_warned_of(
    optc: Optc, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPTC_BACKENDS_JSON", "OPTC_BENCH_JSON", "OPTC_COMPUTER_JSON", "BACKEND_JSON"):
        monkeypatch.setenv(name, "0")  # right, of another command, of nothing like it, of others
    assert optc("backends", "-q").err == ""
    monkeypatch.setenv("OPTC_BACKEND_LOG_FILE", "x")
    assert optc("backends", "-q").err == (
        "warning: OPTC_BACKEND_LOG_FILE names no command and has no effect "
        "(did you mean OPTC_BACKENDS_LOG_FILE?)\n"
    )


def test_quiet_and_verbose_exclude_each_other(
    optc: Optc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    problem = "--quiet and --verbose exclude each other; give one of them"
    for both in (("-q", "-v"), ("-vv", "--quiet")):
        outcome = optc("backends", *both)
        assert (outcome.code, outcome.out) == (2, "")
        assert problem in outcome.err
    assert json.loads(optc("backends", "--json", "-qv").out)["error"]["kind"] == "input"
    monkeypatch.setenv("OPTC_QUIET", "1")
    assert optc("backends", "-v").code == 0  # the command line goes before a variable
    monkeypatch.setenv("OPTC_BACKENDS_VERBOSE", "1")
    assert problem in optc("backends").err
    assert optc("backends", "-q").code == 0
