"""Windows: each part of an epoch once, held-out text apart, errors by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from optc.compiling.training.batches import HELD_OUT_TOKENS, HELD_OUT_WINDOWS, Windows, read_pool
from optc.errors import InputError
from tests.support.chats import PLAIN, chat, conversation, small_tokenizer
from tests.support.letters import begin_texts, letters_folder

CONFIG = {"bos_token_id": 30, "eos_token_id": [31]}


def test_an_epoch_has_each_window_once_and_the_next_another_order() -> None:
    stream = np.arange(103, dtype=np.int32)
    windows = Windows(stream, 10, 3, seed=1)
    epoch = [windows(step) for step in range(3)]  # nine windows
    starts = np.sort(np.concatenate([one[:, 0].numpy() for one in epoch]))
    assert set(np.diff(starts)) == {10}
    assert all((one[:, -1] - one[:, 0] == 9).all() for one in epoch)
    after = np.concatenate([windows(step)[:, 0].numpy() for step in range(3, 6)])
    assert not np.array_equal(after, np.concatenate([one[:, 0].numpy() for one in epoch]))
    again = Windows(stream, 10, 3, seed=1)
    assert np.array_equal(again(4), windows(4))  # a function of the step


def test_each_window_begins_as_the_models_texts_begin() -> None:
    stream = np.arange(103, dtype=np.int32)
    windows, plain = Windows(stream, 10, 3, seed=1, start=0), Windows(stream, 10, 3, seed=1)
    for step in range(4):
        assert (windows(step)[:, 0] == 0).all()
        assert (windows(step)[:, 1:] == plain(step)[:, 1:]).all()
    assert stream.tolist() == list(range(103))


def test_the_last_twentieth_is_held_out(tmp_path: Path) -> None:
    folder = letters_folder(tmp_path)
    pool = read_pool(folder, CONFIG, [folder / "text.txt"], None, 32)
    assert len(pool.stream) + 450 == 9002
    assert pool.stream[0] == 30
    assert pool.held_out.shape == (15, 32)
    apart = read_pool(folder, CONFIG, [folder / "text.txt"], folder / "text.txt", 32)
    assert len(apart.stream) == 9002
    assert apart.held_out.shape == (HELD_OUT_TOKENS // 32, 32)
    assert apart.start is None
    begin_texts(folder, "<s>", 30)
    begun = read_pool(folder, CONFIG, [folder / "text.txt"], None, 32)
    assert begun.start == 30
    assert (begun.held_out[:, 0] == 30).all()
    few = read_pool(folder, CONFIG, [folder / "text.txt"], folder / "text.txt", 512)
    assert few.held_out.shape == (HELD_OUT_WINDOWS, 512)  # never fewer than these


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    folder = letters_folder(tmp_path, letters=50)
    with pytest.raises(InputError, match=r"text\.txt: the text has 52 tokens, too few for windows"):
        read_pool(folder, CONFIG, [folder / "text.txt"], None, 32)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"no tokenizer\.json to read a text with"):
        read_pool(folder, CONFIG, [folder / "text.txt"], None, 8)


def test_conversations_are_trained_on_as_the_template_renders_them(tmp_path: Path) -> None:
    small_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text(PLAIN)
    talk = {"messages": [{"role": r, "content": "hi"} for r in ("user", "assistant")]}
    text = tmp_path / "t.jsonl"
    text.write_text((json.dumps(talk) + "\n") * 20)
    pool = read_pool(tmp_path, {}, [text], text, 16)
    assert pool.stream.tolist() == chat(PLAIN).encode(conversation("hi", "hi")) * 20
