"""What a user tells ``optc chat`` itself."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from optc.cli.chat.chat_commands import COMMANDS, run_command
from optc.cli.chat.conversation import Conversation
from optc.runtime.params import SamplingParams
from tests.cli.chat.conftest import Talk

if TYPE_CHECKING:
    from optc import Engine


def test_help_lists_all(talk: Talk) -> None:
    shown = talk("/help").err
    assert all(f"/{name}" in shown for name in COMMANDS)


def test_reset_keeps_the_system(talk: Talk, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    talk("hi", "/reset", f"/save {file}", options=("--system", "s"))
    assert json.loads(file.read_text())["messages"] == [{"role": "system", "content": "s"}]
    outcome = talk("hi", "/reset", f"/save {file}")
    assert json.loads(file.read_text())["messages"] == []
    assert "0 messages are in" in outcome.err


def test_params_are_shown_and_set(talk: Talk) -> None:
    shown = talk(
        '/params temperature=0.5 stop=END max-tokens=2 logit_bias={"5":-1}', "hi", "/params"
    ).err
    assert shown.count("temperature=0.5\n") == 2
    assert 'stop=["END"]' in shown
    assert '"5": -1' in shown
    assert "(2 tokens" in shown


#: What a model's own settings may be, none of them a default of optc.
OWN: dict[str, Any] = {
    "temperature": 0.6,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.1,
    "typical_p": 0.8,
    "repetition_penalty": 1.2,
    "max_tokens": 300,
    "stop": ["END"],
    "stop_token_ids": [5],
}


@pytest.mark.parametrize("name", OWN)
def test_params_are_what_holds_for_the_next_answer(name: str) -> None:
    engine = cast("Engine", SimpleNamespace(defaults=OWN))
    conversation = Conversation(engine, SamplingParams(seed=1))
    lines = run_command(conversation, "/params").splitlines()
    assert f"{name}={json.dumps(OWN[name])}  (the model's own)" in lines
    assert "seed=1" in lines
    assert "presence_penalty=0.0" in lines
    stated = json.dumps(getattr(SamplingParams(), name))
    lines = run_command(conversation, f"/params {name}={stated}").splitlines()
    assert f"{name}={stated}" in lines
    assert sum("the model's own" in line for line in lines) == len(OWN) - 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/params temperature=-1", "temperature=-1 is not allowed"),
        ("/params temprature=1", "'temprature=1' sets no parameter (did you mean temperature=…?)"),
        ("/params temperature", "'temperature' sets no parameter"),
        ("/params n=2", "'n=2' sets no parameter"),
        ("/rest", "no command /rest (did you mean /reset?)"),
        ("/xyz", "//text says /text"),
        ("/stats now", "/stats takes nothing (you gave 'now')"),
        ("/save", "/save takes a file"),
        ("/load absent.json", "cannot read absent.json: No such file or directory"),
        ("/save absent/chat.json", "cannot be written: No such file or directory"),
    ],
)
def test_errors(talk: Talk, line: str, message: str) -> None:
    outcome = talk(line)
    assert outcome.code == 2
    assert message in outcome.err


def test_stats(talk: Talk) -> None:
    assert "no answer yet" in talk("/stats").err
    shown = talk("hi", "and", "/stats").err
    assert "answers: 2, of 10 tokens; prompts had " in shown
    assert "from the prefix cache" in shown
    assert " of 128 tokens of the context" in shown
    assert "tokens/s\n" in shown
    assert "the last answer began after " in shown


def test_only_conversations_are_overwritten(talk: Talk, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"precious": 1}')
    assert "something that is not a conversation" in talk("hi", f"/save {other}").err
    assert other.read_text() == '{"precious": 1}'
    assert f"/load {other}: not a conversation" in talk(f"/load {other}").err
    other.write_text("[")
    assert "not JSON" in talk(f"/load {other}").err
