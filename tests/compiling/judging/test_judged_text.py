"""What an engine is judged on: a user's texts and conversations, and what is shipped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.manifest import TokenizerEntry
from optc.compiling.judging.judged_text import (
    JudgedText,
    ModelLimits,
    check_conversations,
    judged_text,
)
from optc.errors import InputError
from optc.proof.conversations.scored import SHIPPED
from tests.runtime.support.artifacts import write_artifact
from tests.support.chats import PLAIN, tool

LIMITS = ModelLimits(vocab_size=300, max_context=2048, parameters=1000)
TEXT = {"text": "some prose of a user " * 40}
TALK = {
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho there"}]
}


def written(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def tokenizer(folder: Path, template: str = PLAIN) -> TokenizerEntry:
    if folder.exists():
        shutil.rmtree(folder)
    made = write_artifact(folder, chat_template=template.replace("<|im_end|>", "</s>"))
    entry = made.manifest.tokenizer
    assert entry is not None
    return entry


def judged(tmp_path: Path, text: Path | None) -> JudgedText:
    return judged_text(LIMITS, tmp_path / "a", tokenizer(tmp_path / "a"), text)


def test_prose_and_conversations_are_shipped(tmp_path: Path) -> None:
    found = judged(tmp_path, None)
    assert (found.windows.source, found.prose) == ("shipped default text", True)
    assert found.conversations is not None
    assert found.conversations.source == SHIPPED
    assert found.conversations.tokenizer_file == tmp_path / "a/tokenizer/tokenizer.json"


def test_a_text_takes_the_place_of_shipped_prose_alone(tmp_path: Path) -> None:
    found = judged(tmp_path, written(tmp_path / "t.jsonl", TEXT))
    assert (found.windows.source, found.prose) == ("t.jsonl", True)
    assert found.conversations is not None
    assert found.conversations.source == SHIPPED


def test_conversations_alone_are_all_there_is(tmp_path: Path) -> None:
    found = judged(tmp_path, written(tmp_path / "t.jsonl", TALK, TALK))
    assert (found.windows.source, found.prose) == ("t.jsonl", False)
    assert found.conversations is not None
    assert found.conversations.source == "t.jsonl"
    assert len(found.conversations.sequences) == 2
    assert found.windows.ids.size >= 2 * len(found.conversations.sequences[0].ids) - 2, (
        "continuations and speed are measured on all that stands in them"
    )


def test_texts_and_conversations_of_one_file_are_apart(tmp_path: Path) -> None:
    found = judged(tmp_path, written(tmp_path / "t.jsonl", TALK, TEXT))
    assert found.prose
    assert found.conversations is not None
    assert found.conversations.source == "t.jsonl"
    alone = judged(tmp_path, written(tmp_path / "t.jsonl", TEXT))
    assert (found.windows.ids == alone.windows.ids).all()


@pytest.mark.parametrize("entry", ["no template", "no tokenizer"])
def test_without_a_template_there_are_none(tmp_path: Path, entry: str) -> None:
    made = tokenizer(tmp_path / "a", "") if entry == "no template" else None
    if made is not None:
        made = TokenizerEntry(made.files[:1], 0, (1,), True)
    found = judged_text(LIMITS, tmp_path / "a", made, None)
    assert (found.conversations, found.prose) == (None, True)
    assert found.absent == "the model has no chat template"
    if made is not None:
        text = written(tmp_path / "t.jsonl", TEXT, TALK)
        message = "the model has no chat template to render a conversation with"
        with pytest.raises(InputError, match=rf"t\.jsonl:2: {message}"):
            check_conversations(tmp_path / "a", made, text, 2048)
        with pytest.raises(InputError, match=rf"t\.jsonl:1: {message}"):
            judged_text(LIMITS, tmp_path / "a", made, written(text, TALK, {**TALK}))


def test_a_template_that_takes_none_of_the_shipped_says_so(tmp_path: Path) -> None:
    entry = tokenizer(tmp_path / "a", "{{ raise_exception('only poems') }}")
    found = judged_text(LIMITS, tmp_path / "a", entry, None)
    assert found.conversations is None
    assert found.absent == "none of the shipped conversations can be rendered: only poems"


@pytest.mark.parametrize(
    ("line", "context", "message"),
    [
        ({**TALK, "tools": [tool("look")]}, 2048, "the chat template cannot render tools"),
        (TALK, 20, "longer than the context of 20 tokens"),
    ],
)
def test_a_users_conversations_are_checked_before_the_long_stages(
    tmp_path: Path, line: dict[str, Any], context: int, message: str
) -> None:
    entry, text = tokenizer(tmp_path / "a"), written(tmp_path / "t.jsonl", TEXT, line)
    with pytest.raises(InputError, match=rf"t\.jsonl:2: {message}"):
        check_conversations(tmp_path / "a", entry, text, context)
    check_conversations(tmp_path / "a", entry, written(text, TEXT), context)
    check_conversations(tmp_path / "a", entry, None, context)
