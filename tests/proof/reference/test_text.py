"""Evaluation text: documents, framing, windows, and what is said about them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from optc.errors import InputError
from optc.proof.reference.text import (
    calibration_text,
    cut_windows,
    default_documents,
    eval_windows,
    read_documents,
    windows_for,
)


@pytest.fixture
def tokenizer_file(tmp_path: Path) -> Path:
    vocabulary = {"<s>": 0, "</s>": 1, "[UNK]": 2, **{c: 3 + i for i, c in enumerate("abcdefgh")}}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def write(path: Path, *documents: str) -> Path:
    lines = [json.dumps({"name": "x", "text": text}) for text in documents]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_plain_text_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a b\n\nc")
    assert read_documents(tmp_path / "t.txt") == ["a b\n\nc"]


def test_windows_are_evenly_spaced_and_cover_the_stream() -> None:
    stream = np.arange(100, dtype=np.int32)
    found = cut_windows(stream, 10, 4)
    assert found.shape == (4, 11)
    assert found[:, 0].tolist() == [0, 29, 58, 88]
    assert found[-1, -1] == 98
    np.testing.assert_array_equal(np.diff(found, axis=1), 1)


def test_short_text_gives_fewer_or_shorter_windows() -> None:
    assert cut_windows(np.arange(25, dtype=np.int32), 10, 60).shape == (3, 11)
    assert cut_windows(np.arange(6, dtype=np.int32), 10, 60).tolist() == [[0, 1, 2, 3, 4, 5]]
    assert cut_windows(np.arange(2, dtype=np.int32), 10, 60).tolist() == [[0, 1]]
    with pytest.raises(InputError, match="fewer than two tokens"):
        cut_windows(np.arange(1, dtype=np.int32), 10, 60)


def test_large_models_get_fewer_windows() -> None:
    assert windows_for(11_000_000) == 60
    assert windows_for(135_000_000) == 10
    assert windows_for(268_000_000) == 8
    assert windows_for(1_240_000_000) == 7
    assert windows_for(70_000_000_000) == 4


def test_what_was_scored_is_stated(tmp_path: Path, tokenizer_file: Path) -> None:
    text = write(tmp_path / "held.jsonl", "a b c d e f g h " * 20, "a a b b")
    found = eval_windows(
        vocab_size=11,
        max_context=16,
        parameters=1000,
        tokenizer_file=tokenizer_file,
        bos=0,
        eos=1,
        text_file=text,
    )
    assert found.ids.shape == (11, 17)
    assert found.tokens == 11 * 16
    assert found.source == "held.jsonl"
    assert found.convention == (
        "11 evenly spaced windows of 16 tokens out of 168; documents joined with BOS and EOS; "
        "each window begins with BOS"
    )


def test_windows_begin_as_the_tokenizer_begins_texts(tmp_path: Path, tokenizer_file: Path) -> None:
    content = json.loads(tokenizer_file.read_text())
    assert content.pop("post_processor") is not None
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(content))
    text = write(tmp_path / "held.jsonl", "a c d e f g h " * 20)
    found, plain = (
        eval_windows(
            vocab_size=11,
            max_context=16,
            parameters=1000,
            tokenizer_file=file,
            bos=0,
            text_file=text,
        )
        for file in (tokenizer_file, bare)
    )
    np.testing.assert_array_equal(found.ids[:, 1:], plain.ids[:, 1:])
    assert (found.ids[:, 0] == 0).all()
    assert not (plain.ids[:, 0] == 0).all()
    assert "no BOS added at a window's start" in plain.convention


def test_the_shipped_text_is_the_default(tokenizer_file: Path) -> None:
    found = eval_windows(
        vocab_size=11, max_context=512, parameters=1000, tokenizer_file=tokenizer_file
    )
    assert found.source == "shipped default text"
    assert "documents joined with nothing between" in found.convention
    assert sum(map(len, default_documents())) > 70_000


def test_no_line_of_the_calibration_text_is_in_a_text_that_is_judged_by() -> None:
    def lines(documents: list[str]) -> set[str]:
        return {line for text in documents for line in text.splitlines() if len(line) > 60}

    shipped = read_documents(calibration_text())
    assert 200_000 < sum(map(len, shipped)) < 400_000
    held = read_documents(Path("examples/text/code_heldout.jsonl"))
    assert not lines(shipped) & (lines(default_documents()) | lines(held))


def test_without_a_tokenizer_random_ids_are_scored_and_it_is_said() -> None:
    first, second = (
        eval_windows(vocab_size=97, max_context=32, parameters=1000, tokenizer_file=None)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.ids, second.ids)
    assert first.ids.shape == (60, 33)
    assert first.ids.max() < 97
    assert "random token ids" in first.source
    assert "uniformly random token ids, seed 0" in first.convention


def test_a_text_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    text = write(tmp_path / "t.jsonl", "a")
    with pytest.raises(InputError, match=r"no tokenizer\.json to encode the text with"):
        eval_windows(
            vocab_size=9, max_context=32, parameters=1, tokenizer_file=None, text_file=text
        )


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, tokenizer_file: Path) -> None:
    text = write(tmp_path / "t.jsonl", "a b h")
    with pytest.raises(InputError, match="the tokenizer gives id 10, the model knows 5 ids"):
        eval_windows(
            vocab_size=5,
            max_context=32,
            parameters=1,
            tokenizer_file=tokenizer_file,
            text_file=text,
        )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the text is empty"),
        ('{"text": "a"}\nnot json\n', r"t\.jsonl:2: not a document"),
        ('{"name": "a"}\n', r"t\.jsonl:1: not a document"),
        ("[1]\n", r"t\.jsonl:1: not a document"),
        ('{"text": 3}\n', r"t\.jsonl:1: text is not a string"),
        ('{"text": "\\ud800"}\n', r"t\.jsonl:1: not a document: .*half of a surrogate pair"),
        ("[" * 100_000, r"t\.jsonl:1: not a document: it is nested more than"),
    ],
)
def test_bad_texts_are_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises(InputError, match=message):
        read_documents(tmp_path / "t.jsonl")


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.txt: cannot read the text"):
        read_documents(tmp_path / "gone.txt")
    (tmp_path / "latin.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InputError, match=r"latin\.txt: cannot read the text"):
        read_documents(tmp_path / "latin.txt")


def test_where_only_texts_are_read_conversations_are_refused(tmp_path: Path) -> None:
    talk = {"messages": [{"role": r, "content": "hi"} for r in ("user", "assistant")]}
    (tmp_path / "t.jsonl").write_text(json.dumps(talk))
    with pytest.raises(InputError, match=r"t\.jsonl:1: a conversation, where only texts are read"):
        read_documents(tmp_path / "t.jsonl")


def test_shipped_texts_stay_what_they_are() -> None:
    """Figures of two releases are compared on them: new names of code must not reach them."""
    folder = calibration_text().parent
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted(folder.glob("*.jsonl"))
    }
    assert found == {
        "calibration_text.jsonl": "63153ae701637d75",
        "default_text.jsonl": "a5a2a726d5daf495",
    }


def test_each_window_begins_as_the_models_texts_begin() -> None:
    stream = np.arange(100, 140, dtype=np.int32)
    plain, begun = cut_windows(stream, 8, 4), cut_windows(stream, 8, 4, start=7)
    assert (plain[:, 0] != 7).all()
    assert begun[:, 0].tolist() == [7] * 4
    assert (plain[:, 1:] == begun[:, 1:]).all()
    assert stream[0] == 100  # the stream is not written to
