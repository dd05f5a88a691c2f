"""Commands show what a model thinks on stderr, and answers alone on stdout."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Optc
from tests.serve.toys import TEMPLATE, saying

THINKS = TEMPLATE + "{% if false %}<think></think>{% endif %}"
ASKED = [{"role": "user", "content": "hi"}]
ANSWER = {"role": "assistant", "content": "hello", "reasoning": "hm"}


@pytest.fixture
def thinker(talker: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An artifact whose model thinks and answers a first message."""

    def load(*arguments: Any, **options: Any) -> Any:
        return saying("<think>hm</think>hello", ASKED, THINKS)

    monkeypatch.setattr("optc.runtime.loader.load", load)
    return talker


def test_a_chat(thinker: Path, optc: Optc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    monkeypatch.setattr("sys.stdin", io.StringIO(f"hi\n/save {file}\n"))
    outcome = optc("chat", thinker)
    assert (outcome.code, outcome.out) == (0, "hello\n")
    assert outcome.err.startswith("hm\n")
    assert json.loads(file.read_text())["messages"] == [*ASKED, ANSWER]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"/save {file}\n"))
    assert optc("chat", thinker, "--messages", file).code == 0
    assert json.loads(file.read_text())["messages"] == [*ASKED, ANSWER], "as it was"


def test_a_run(thinker: Path, optc: Optc) -> None:
    call = ("run", thinker, "--chat", "--prompt", "hi", "--temperature", 0, "--max-tokens", 40)
    outcome = optc(*call)
    assert (outcome.code, outcome.out) == (0, "hello\n")
    assert outcome.err.startswith("hm\n")
    found = optc(*call, "--json").json
    assert (found["text"], found["reasoning"]) == ("hello", "hm")
    several = optc(*call, "--n", 2, "--seed", 1, "--json").json["completions"]
    assert {(one["text"], one["reasoning"]) for one in several} == {("hello", "hm")}


def test_answers_to_a_file(thinker: Path, optc: Optc, tmp_path: Path) -> None:
    body = {"model": "m", "messages": ASKED, "temperature": 0, "max_tokens": 40}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    files = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    files[0].write_text(json.dumps(line) + "\n")
    outcome = optc("run", thinker, "--input", files[0], "--output", files[1])
    assert outcome.code == 0, outcome.err
    (choice,) = json.loads(files[1].read_text())["response"]["body"]["choices"]
    assert choice["message"] == ANSWER
