"""``optc run``: where prompts come from, and which of them are conversations."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import optc as package
from tests.cli.conftest import Optc

PARAMS = package.SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
RUN = ("--max-tokens", "4", "--ignore-eos")
SAID = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "yes"},
    {"role": "user", "content": "and"},
]


def expected(talker: Path, *prompts: Any) -> list[str]:
    with package.load(talker) as engine:
        return [output.text for output in engine.generate(list(prompts), PARAMS)]


def texts(value: dict[str, Any]) -> list[str]:
    return [result["text"] for result in value.get("results", [value])]


def test_prompts_are_what_a_user_says(optc: Optc, talker: Path) -> None:
    user = {"role": "user", "content": "hi"}
    system = {"role": "system", "content": "s"}
    hello, answered, led = expected(
        talker, "hi", package.Chat([user]), package.Chat([system, user])
    )
    run = ("run", talker, "--prompt", "hi", *RUN, "--json")
    assert texts(optc(*run).json) == [hello]
    assert texts(optc(*run, "--chat").json) == [answered]
    assert texts(optc(*run, "--system", "s").json) == [led]
    assert optc("run", talker, "--prompt", "hi", "--chat", *RUN).out == answered + "\n"
    assert len({hello, answered, led}) == 3


@pytest.mark.parametrize("form", [SAID, {"messages": SAID, "model": "any"}])
def test_conversations_in_files(
    optc: Optc, talker: Path, tmp_path: Path, form: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(form))
    led = [{"role": "system", "content": "s"}, *SAID]
    plain, with_system = expected(talker, package.Chat(SAID), package.Chat(led))
    run = ("run", talker, *RUN, "--json", "--messages")
    assert texts(optc(*run, path).json) == [plain]
    assert texts(optc(*run, path, "--system", "s").json) == [with_system]
    path.write_text(json.dumps([{"role": "system", "content": "old"}, *SAID]))
    assert texts(optc(*run, path, "--system", "s").json) == [with_system]
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(form)))
    assert texts(optc(*run, "-").json) == [plain]


def test_prompts_in_files(optc: Optc, talker: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("two\nlines\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("é", encoding="utf-8")
    files = [part for name in "ab" for part in ("--prompt-file", tmp_path / f"{name}.txt")]
    value = optc("run", talker, *files, "--prompt", "hi", *RUN, "--json").json
    assert texts(value) == expected(talker, "hi", "two\nlines\n", "é")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a conversation"),
        ('{"prompt": "x"}', "not a conversation"),
        ('[{"role": "user"}]', "not a conversation"),
        ('[{"role": 1, "content": ""}]', "not a conversation"),
    ],
)
def test_files_that_are_no_conversations(
    optc: Optc, talker: Path, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "chat.json"
    path.write_text(text)
    outcome = optc("run", talker, "--messages", path)
    assert outcome.code == 2
    assert f"--messages {path}: {message}" in outcome.err
    assert "a JSON list of" in outcome.err


def test_what_is_not_there(optc: Optc, talker: Path) -> None:
    for option in ("--prompt-file", "--messages"):
        outcome = optc("run", talker, option, "absent")
        assert outcome.code == 2
        assert f"{option}: cannot read absent: No such file or directory" in outcome.err
    outcome = optc("run", talker, "--prompt", "-", "--messages", "-")
    assert (outcome.code, "stdin can be read once" in outcome.err) == (2, True)


def test_commands_warn_of_variables_that_change_nothing(
    optc: Optc, talker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = ("--chat-template-kwargs", '{"thinkng": false}', "--max-tokens", "2")
    expected = "warning: --chat-template-kwargs: thinkng: the chat template does not read it"
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
    files = ("--input", lines, "--output", tmp_path / "answers.jsonl")
    for command in (("run", talker, "--chat", "--prompt", "a"), ("run", talker, *files)):
        outcome = optc(*command, *option)
        assert outcome.err.count(expected) == 1, outcome
    monkeypatch.setattr("sys.stdin", lines.open())
    assert expected in optc("chat", talker, *option).err
