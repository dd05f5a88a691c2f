"""Lines of batches, optc's own and OpenAI's: read, and answered with what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.edits import edit_json, edit_text
from tests.fuzz.form import FileFormat, Materials, expect
from tests.fuzz.formats.chat import WORDS
from tests.fuzz.odd import NUMBERS, TEXTS

_LINE = "line.jsonl"
_MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
_PARTS = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
_TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object"}},
}
_SAMPLES: tuple[Any, ...] = (
    "def f(x):",
    {"prompt": "def f(x):", "max_tokens": 3, "temperature": 0.5},
    {"custom_id": "a", "prompt": [2, 3], "stop": ["a"]},
    {"messages": _MESSAGES, "top_p": 0.9},
    {
        "custom_id": "a",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "m", "messages": _MESSAGES, "max_completion_tokens": 3, "n": 2},
    },
    {
        "custom_id": "b",
        "url": "/v1/chat/completions",
        "body": {"messages": _PARTS, "tools": [_TOOL], "response_format": {"type": "json_object"}},
    },
    {
        "custom_id": "c",
        "url": "/v1/completions",
        "body": {"prompt": ["a", "b"], "logprobs": 2, "echo": True, "stop": None},
    },
)
_KNOWN: dict[str, list[Any]] = {
    "url": ["/v1/completions", "/v1/chat/completions", "/v1/embeddings", "", None, 3],
    "method": ["GET", "post", None, 1],
    "role": ["tool", "developer", "assistant", "", None, 3],
    "content": [None, [], "", [_MESSAGES], [{"type": "image_url", "image_url": {"url": "x"}}]],
    "tool_calls": [[], None, [{"id": "x", "type": "function", "function": {"name": "f"}}], [3]],
    "tools": [[], None, [{}], [_TOOL] * 3, {}, "x"],
    "tool_choice": ["none", "auto", "required", {"type": "function"}, 3],
    "response_format": [
        None,
        {"type": "text"},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        {"type": "json_schema", "json_schema": None},
        {"type": "grammar"},
        [],
    ],
    "logit_bias": [{}, {"5": 1}, {"x": 1}, {"5": "x"}, [], {"99999999999999999999": 1}],
    "logprobs": [False, True, 0, 5, None, "x"],
    "top_logprobs": [0, 5, 21, -1, None],
    "echo": [False, True, None, "x"],
    "stream": [False, True, None],
    "n": [0, 1, 2, 10**9, None],
    "prompt": ["", [], [[]], [2, 3], [[2], [3]], ["a", [2]], None, {}, [10**30]],
    "chat_template_kwargs": [{}, None, {"enable_thinking": False}, {"messages": 3}, [], "x"],
    "continue_final_message": [True, False, None, "x"],
    "add_generation_prompt": [True, False, None, "x"],
    "seed": [-1, 0, 2**64, None],
    "stop": ["", [], [""], ["a"] * 99, None, {}],
    **{key: list(NUMBERS) for key in ("max_tokens", "max_completion_tokens", "temperature")},
    **{key: [*TEXTS, None] for key in ("custom_id", "model", "user", "service_tier")},
}


class BatchLines(FileFormat):
    """What `optc run --input` reads of a line; an error of the line must be an answer in JSON."""

    name = "batch-line"

    def prepare(self, materials: Materials) -> None:
        super().prepare(materials)
        import optc.cli.batch.batch_line  # noqa: F401 - imported once, before the forks

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        return [{_LINE: json.dumps(one).encode()} for one in _SAMPLES]

    def open(self, folder: Path) -> None:
        super().open(folder)
        from optc import SamplingParams
        from optc.cli.batch.batch_line import LineReader
        from optc.cli.generating.prompts import PromptOptions
        from optc.runtime.settings import ServeSettings

        self.reader = LineReader(PromptOptions(), SamplingParams(), ServeSettings())

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        if random.random() < 0.1:
            return edit_text(random, data, WORDS)
        return edit_json(random, data, _KNOWN)

    def check(self, folder: Path) -> None:
        line = self.reader.read(7, (folder / _LINE).read_bytes())
        if line.error is None:
            expect(bool(line.prompts), "a line without a prompt was taken", line)
            return
        answer = json.dumps(line.form.failure(line.error), allow_nan=False)
        expect("\n" not in answer, "an answer of several lines", answer)
        raise line.error
