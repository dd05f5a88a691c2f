"""What the shell completes to, asked as the shell asks."""

from __future__ import annotations

import pytest
from click.shell_completion import BashComplete, ShellComplete

from optc import registry
from optc.cli.main import cli


def completed(*words: str, shell: type[ShellComplete] = BashComplete) -> list[tuple[str, str]]:
    *arguments, incomplete = words
    asked = shell(cli, {}, "optc", "_OPTC_COMPLETE")
    return [(item.type, item.value) for item in asked.get_completions(arguments, incomplete)]


@pytest.mark.parametrize("command", ["compile", "plan", "distill"])
def test_recipes(command: str) -> None:
    names = sorted(registry.recipe_files())
    assert completed(command, "--recipe", "") == [("plain", name) for name in names]
    assert ("plain", "int8-fused") in completed(command, "--recipe", "int8")
    assert completed(command, "--recipe", "./my") == [("file", "./my")]


def test_backends() -> None:
    assert completed("compile", "--backend", "tvm") == [("plain", "tvm"), ("plain", "tvm-cuda")]
    assert completed("compile", "--backend", "tvm:") == []


def test_commands_and_options() -> None:
    assert completed("repo") == [("plain", "report")]
    assert ("plain", "--bench") in completed("report", "--b")
