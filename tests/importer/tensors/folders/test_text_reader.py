"""Tokenizers of encoders' folders, beside transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from optc.errors import InputError
from optc.importer.tensors.folders.text_reader import TextReader
from tests.importer.tensors.encoders import bert

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ab", "Ab", "##c", "##C", "."]
TEXTS = ["abc Ab.", "AbC ab", "xyz"]


def word_pieces(folder: Path, *, file: bool) -> Path:
    """BERT's tokenizer, whose settings say that texts get small letters and whose file does not."""
    folder.mkdir()
    stated = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 7}
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
    if not file:
        (folder / "vocab.txt").write_text("\n".join(WORDS))
        return folder
    reader = Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    reader.normalizer = normalizers.BertNormalizer(lowercase=False)
    reader.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    reader.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    reader.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("file", [True, False])
def test_texts_are_read_as_transformers_reads_them(tmp_path: Path, file: bool) -> None:
    folder = word_pieces(tmp_path / "model", file=file)
    found = TextReader.of(folder)
    assert found is not None
    assert (found.most, found.padding, found.typed) == (7, 0, True)
    ours = Tokenizer.from_str(found.to_json(7)).encode_batch(TEXTS)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True)["input_ids"]
    assert [one.ids for one in ours] == theirs
    assert theirs[0][:3] == [2, 5, 7]  # in small letters


def test_small_letters_come_first(tmp_path: Path) -> None:
    folder = bert(tmp_path / "model")
    assert [bool(one and one.most) for one in (TextReader.of(folder),)] == [False]
    plain, lower = (TextReader.of(folder, lower=lower) for lower in (False, True))
    assert plain is not None
    assert lower is not None
    assert plain.backend.encode("AbC").ids == [2, 1, 5, 1, 3]
    assert lower.backend.encode("AbC").ids == [2, 4, 5, 6, 3]


def test_folders_without_a_vocabulary_and_with_a_damaged_one(tmp_path: Path) -> None:
    assert TextReader.of(tmp_path) is None
    (tmp_path / "tokenizer.json").write_text("{")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(InputError, match="its tokenizer is not read"):
        TextReader.of(tmp_path)
