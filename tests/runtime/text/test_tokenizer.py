from __future__ import annotations

import json
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from optc.errors import ArtifactError, RequestError
from optc.runtime.text.tokenizer import Tokenizer, read_tokenizer
from tests.runtime.support.texts import TEXTS, byte_level

TEMPLATE = """{%- for message in messages -%}
{%- if message.role == 'bad' %}{{ raise_exception('no such role') }}{% endif -%}
{{ bos_token }}<{{ message.role }}>{{ message['content'] }}
{% endfor -%}
{%- if tools is not none %}{{ tools | tojson }}{% endif -%}
{%- if add_generation_prompt %}<assistant>{% endif -%}
"""


def chat(template: str = TEMPLATE) -> Tokenizer:
    return Tokenizer(byte_level(), chat_template=template, special_tokens={"bos_token": "<s>"})


@pytest.mark.parametrize("text", TEXTS)
def test_texts_come_back(text: str) -> None:
    tokenizer = Tokenizer(byte_level())
    assert tokenizer.decode(tokenizer.encode(text)) == text


#: A post-processor that names a token which it does not describe.
CLASHING = {
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}],
        "pair": [],
        "special_tokens": {},
    }
}


@pytest.mark.parametrize("adds", [False, True])
def test_exactly_one_bos_token_whoever_adds_it(adds: bool) -> None:
    tokenizer = Tokenizer(byte_level(bos=adds), bos_token_id=0)
    assert tokenizer.encode("a") == [0, *tokenizer.encode("a", add_special_tokens=False)]
    assert tokenizer.encode("") == [0]
    without = Tokenizer(byte_level())
    assert 0 not in without.encode("a")


def test_a_tokenizer_that_gives_up_is_an_error_of_the_request() -> None:
    class PanicException(BaseException):
        """As the package raises it."""

    class Panics:
        def get_added_tokens_decoder(self) -> dict[int, object]:
            return {}

        def encode_batch_fast(self, *_: object, **__: object) -> None:
            raise PanicException("Onig: retry-limit-in-match over")

    tokenizer = Tokenizer(byte_level())
    tokenizer.backend = Panics()  # type: ignore[assignment]
    with pytest.raises(RequestError, match="the tokenizer cannot encode the text: Onig: retry"):
        tokenizer.encode("a")


def test_others_run_python_while_a_text_is_encoded() -> None:
    tokenizer, counted, ended = Tokenizer(byte_level()), [0], threading.Event()

    def count() -> None:
        while not ended.is_set():
            counted[0] += 1
            time.sleep(0)

    usual = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    thread.start()
    try:
        sys.setswitchinterval(1e6)  # nobody takes the interpreter from this thread
        before, seen = counted[0], False
        for _ in range(50):
            tokenizer.encode("a long text " * 10_000)
            seen = seen or counted[0] > before
    finally:
        sys.setswitchinterval(usual)
        ended.set()
        thread.join()
    assert seen


def test_a_limit_in_the_file_is_lifted() -> None:
    backend = byte_level()
    backend.enable_truncation(2)
    backend.enable_padding(length=8)
    assert len(Tokenizer(backend).encode("abcd")) == 4


def test_chats_are_rendered_and_encoded_without_further_special_tokens() -> None:
    tokenizer = chat()
    messages = [{"role": "user", "content": "hé"}]
    assert tokenizer.render_chat(messages) == "<s><user>hé\n<assistant>"
    assert tokenizer.encode_chat(messages)[0] == 0
    assert tokenizer.encode_chat(messages).count(0) == 1
    with_tools = tokenizer.render_chat(messages, tools=[{"name": "é"}], add_generation_prompt=False)
    assert with_tools == '<s><user>hé\n[{"name": "é"}]'


def test_templates_may_state_the_date() -> None:
    text = chat("{{ strftime_now('%Y-%m-%d') }}").render_chat([])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", text)


@pytest.mark.parametrize(
    ("template", "role", "message"),
    [
        ("", "user", "the model has no chat template (send a plain prompt)"),
        (TEMPLATE, "bad", "messages: no such role (the model's chat template refuses them)"),
        ("{% if %}", "user", "messages: the chat template fails: "),
        ("{{ 'a' + 1 }}", "user", "messages: the chat template fails: "),
        ("{{ messages.append(1) }}", "user", "messages: the chat template fails: "),
        ("{{ ''.__class__.__mro__ }}", "user", "messages: the chat template fails: "),
    ],
)
def test_templates_that_fail_or_reach_out(template: str, role: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        chat(template).render_chat([{"role": role, "content": "x"}])
    assert str(caught.value).startswith(message)


def test_a_tokenizer_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    byte_level().save(str(path))
    assert Tokenizer(read_tokenizer(path)).encode("a") == Tokenizer(byte_level()).encode("a")


@pytest.mark.parametrize("contents", ["", "[]", "{}", "3"])
def test_what_is_no_tokenizer_is_named(tmp_path: Path, contents: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(contents)
    with pytest.raises(ArtifactError, match="not a tokenizer") as caught:
        read_tokenizer(path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    "part",
    [{"normalizer": {"type": "Precompiled"}}, {"model": {"type": "BPE", "vocab": {"a": -1}}}],
    ids=["a panic", "an error"],
)
def test_what_the_package_cannot_read_is_named(tmp_path: Path, part: dict[str, Any]) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(byte_level().to_str()), **part}))
    with pytest.raises(ArtifactError, match=f"^{path}: not a tokenizer: "):
        read_tokenizer(path)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (CLASHING, "no entry found for key"),
        ({"model": {"type": "WordLevel", "vocab": {"x": 0}, "unk_token": "?"}}, "unk"),
    ],
    ids=["a panic", "an error"],
)
@pytest.mark.parametrize("parse_special", [False, True])
def test_what_the_package_cannot_encode_is_an_error_of_the_request(
    part: dict[str, Any], message: str, parse_special: bool
) -> None:
    text = json.dumps({**json.loads(byte_level().to_str()), **part})
    tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(text))
    with pytest.raises(RequestError, match=f"(?i)the tokenizer cannot encode .*{message}"):
        tokenizer.encode("a", parse_special=parse_special)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"not a tokenizer: .*No such file"):
        read_tokenizer(tmp_path / "tokenizer.json")
