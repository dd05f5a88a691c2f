"""Clients that people have chat with the server, streamed, each in a process of its own.

Those that are not installed with the tests are fetched into a folder of their own: together they
ask for versions of each other that do not fit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.suites.fetched import npm, pip
from tests.serve.suites.server import DECODERS, RERANKER, SAID

ASKS = Path(__file__).parent / "asks"
#: What is fetched for each script; those without have it installed.
PYTHON = {
    "openai_python": None,
    "anthropic_python": None,
    "langchain": "langchain-openai",
    "pydantic_agent": "pydantic-ai-slim[openai]",
}


@pytest.mark.long
@pytest.mark.parametrize("name", PYTHON)
def test_a_client_of_python_chats(name: str, url: str, tmp_path: Path) -> None:
    variables = dict(os.environ)
    if package := PYTHON[name]:
        pip("install", "--target", tmp_path, package)
        variables["PYTHONPATH"] = str(tmp_path)
    else:
        pytest.importorskip(name.partition("_")[0], reason="the client is not installed")
    assert said([sys.executable, ASKS / f"{name}.py", url], tmp_path, variables) == SAID


@pytest.mark.long
def test_openais_client_for_node_chats(url: str, tmp_path: Path) -> None:
    npm(tmp_path, "openai")
    script = shutil.copy(ASKS / "openai_node.mjs", tmp_path)  # which looks for packages beside it
    assert said(["node", script, url], tmp_path, dict(os.environ)) == SAID


@pytest.mark.long
def test_coheres_clients_rank(url: str, tmp_path: Path) -> None:
    pip("install", "--target", tmp_path, "cohere")
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, ASKS / "cohere_python.py", url]
    assert said(command, tmp_path, variables, RERANKER).split("\n") == ["[1, 2]", "[1, 2]", ""]


def said(
    command: list[str | Path],
    folder: Path,
    variables: dict[str, str],
    model: str = DECODERS[0],
) -> str:
    """What a script prints that asks a model."""
    done = subprocess.run(
        [*command, model],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout
