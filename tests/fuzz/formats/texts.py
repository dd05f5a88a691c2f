"""Texts for gates and calibration: JSON lines, or plain."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from tests.fuzz.edits import edit_json, edit_text
from tests.fuzz.form import FileFormat, Materials
from tests.fuzz.odd import RAW
from tests.runtime.support.texts import TEXTS, byte_level
from tests.support.chats import call, chat

_LINES, _PLAIN = "text.jsonl", "text.txt"
_UNIT = {"type": "object", "properties": {"unit": {"enum": ["c", "f"]}, "on": {"type": "boolean"}}}
TALKS = (
    {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]},
    {
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "warm?"},
            call("look", unit="c", on=True),
            {"role": "tool", "content": "20"},
            {"role": "assistant", "content": "yes."},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": _UNIT}}],
    },
    {
        "messages": [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": json.dumps({"unit": "f", "on": False})},
        ],
        "response_format": {"type": "json_schema", "json_schema": {"schema": _UNIT}},
    },
)
WORDS = ('{"text": ""}', '{"text": 3}', "[]", "3", '{"text": "a", "text": "b"}', *RAW)


class Texts(FileFormat):
    """The windows of a text, as gates and calibration take them."""

    name = "text"

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        records = [{"name": f"{i}.py", "text": text} for i, text in enumerate(TEXTS)]
        lines = "\n".join(map(json.dumps, records)).encode()
        return [
            {_LINES: lines},
            {_LINES: lines.replace(b"\n", b"\r\n\n")},
            {_PLAIN: "\n".join(TEXTS).encode()},
            {_LINES: "\n".join(map(json.dumps, TALKS)).encode()},
        ]

    def open(self, folder: Path) -> None:
        super().open(folder)
        self.tokenizer = folder.with_name("tokenizer.json")
        byte_level().save(str(self.tokenizer))

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        if name == _PLAIN or random.random() < 0.5:
            return edit_text(random, data, WORDS)
        lines = data.split(b"\n")
        at = random.randrange(len(lines))
        lines[at] = edit_json(random, lines[at])
        return b"\n".join(lines)

    def check(self, folder: Path) -> None:
        from optc.proof.conversations.conversation import Conversation
        from optc.proof.conversations.read import read_texts
        from optc.proof.conversations.scored import scored_conversations
        from optc.proof.reference.text import digest_text, eval_windows

        file = next(folder / name for name in (_LINES, _PLAIN) if (folder / name).is_file())
        digest_text(file)
        eval_windows(
            vocab_size=264,
            max_context=64,
            parameters=10**6,
            tokenizer_file=self.tokenizer,
            bos=0,
            eos=1,
            text_file=file,
            chat=chat(),
        )
        talks = [one for one in read_texts(file) if isinstance(one, Conversation)]
        if talks:
            scored_conversations(
                talks,
                chat(),
                vocab_size=65,
                max_context=4096,
                affordable=10**6,
                source=file.name,
            )
