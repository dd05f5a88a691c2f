"""Where passes that run the model over a text get its tokens from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from optc.errors import InputError
from optc.passes.calibrating.reads_text import ReadsText
from optc.passes.quantize.calibrate import Calibrate
from optc.proof.reference.text import calibration_text, digest_text
from tests.support.chats import PLAIN, chat, conversation, small_tokenizer
from tests.support.dense_models import V, dense_model
from tests.support.letters import begin_texts


def letters(folder: Path, ids: dict[str, int]) -> Path:
    """A model's folder whose tokenizer knows these letters."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(ids | {"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"bos_token_id": 3, "eos_token_id": [4, 5]}))
    return folder


def test_without_a_text_the_shipped_one_is_read(tmp_path: Path) -> None:
    folder = letters(tmp_path, {"e": 1, "t": 2})
    sha256 = digest_text(calibration_text())
    one = Calibrate(folder=str(folder), sha256=sha256, windows=8, window_tokens=64)
    tokens = one.tokens(dense_model(1))
    assert tokens.shape == (8, 64)
    shares = np.bincount(tokens.ravel(), minlength=6) / tokens.size
    assert 0.05 < shares[1] < 0.15  # e in English and in code
    other = Calibrate(folder=str(folder), sha256="0" * 64)
    with pytest.raises(InputError, match=r"calibration_text\.jsonl: the text is not that of"):
        other.tokens(dense_model(1))


def test_without_a_tokenizer_ids_are_random(tmp_path: Path) -> None:
    one = Calibrate(folder=str(tmp_path), windows=4, window_tokens=32)
    tokens = one.tokens(dense_model(1))
    assert tokens.shape == (4, 32)
    assert tokens.dtype == np.int32
    assert tokens.max() == V - 1
    np.testing.assert_array_equal(tokens, one.tokens(dense_model(1)))


def test_a_tokenizer_of_another_model_is_named(tmp_path: Path) -> None:
    one = Calibrate(folder=str(letters(tmp_path, {"e": V})))
    with pytest.raises(InputError) as caught:
        one.tokens(dense_model(1))
    assert str(caught.value) == (
        f"{tmp_path}/tokenizer.json: the tokenizer gives id {V}, the model knows {V} ids "
        "(tokenizer and model do not belong together)"
    )


def test_without_a_folder_it_says_how_to_get_one() -> None:
    with pytest.raises(InputError) as caught:
        Calibrate().requires(dense_model(1))
    assert str(caught.value) == (
        "pass calibrate: nothing says whose tokenizer reads the text to calibrate with "
        "(compile by a recipe, which gives the pass the model's folder)"
    )
    assert issubclass(Calibrate, ReadsText)


def test_conversations_are_read_as_the_template_renders_them(tmp_path: Path) -> None:
    small_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 1}))
    talk = {"messages": [{"role": r, "content": "hi"} for r in ("user", "assistant")]}
    text = tmp_path / "t.jsonl"
    text.write_text(json.dumps(talk) + "\n" + json.dumps({"text": "no."}) + "\n")
    one = Calibrate(folder=str(tmp_path), text=str(text), windows=1, window_tokens=512)
    with pytest.raises(InputError, match=r"t\.jsonl:1: the model has no chat template to render a"):
        one.tokens(dense_model(1))
    (tmp_path / "chat_template.jinja").write_text(PLAIN)
    whole = chat(PLAIN).encode(conversation("hi", "hi"))
    tokens = one.tokens(dense_model(1))[0].tolist()
    assert tokens[: len(whole)] == whole, "a template writes its own control tokens"
    assert tokens[len(whole)] == 0, "texts are framed"


def test_windows_begin_as_the_tokenizer_begins_texts(tmp_path: Path) -> None:
    folder = letters(tmp_path, {"e": 1, "t": 2, "^": 3})
    one = Calibrate(folder=str(folder), windows=8, window_tokens=64)
    assert (one.tokens(dense_model(1))[:, 0] != 3).any()
    begin_texts(folder, "^", 3)
    assert (one.tokens(dense_model(1))[:, 0] == 3).all()
