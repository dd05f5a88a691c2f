"""Folders of encoders with heads become artifacts that classify, label and rank texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers

import optc
from optc.artifact.artifact import Artifact
from optc.errors import RequestError
from optc.importer.tensors import encoder
from tests.importer.tensors.heads import with_head
from tests.support.cost.imported_once import import_once

TEXTS = ["abc", "a" * 20, "xyz xyz", "b"]
PYCODE = Path(__file__).parents[3] / "examples/models/pycode"
LABELS = ["O", "B-PER", "I-PER", "B-LOC"]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A model that labels tokens, which is exported once."""
    with pytest.MonkeyPatch.context() as patch:
        import_once(patch, encoder, encoder.import_encoder)
        yield with_head(tmp_path_factory.mktemp("m") / "m", "BertForTokenClassification", LABELS)


def logits(folder: Path, kind: str, texts: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Logits of transformers for each text alone."""
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    reader = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    found = []
    for text in texts:
        one = reader.encode(*text) if isinstance(text, tuple) else reader.encode(text)
        given = [torch.tensor([row]) for row in (one.ids, one.attention_mask, one.type_ids)]
        names = ("input_ids", "attention_mask", "token_type_ids")
        with torch.no_grad():
            found.append(model(**dict(zip(names, given, strict=True))).logits[0].numpy())
    return found


def softmax(row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    powers = np.exp(row.astype(np.float64))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def gates(artifact: Path) -> dict[str, float]:
    return {one["name"]: one["value"] for one in Artifact.open(artifact).report()["gates"]}


def test_classes_of_texts_and_of_pairs(tmp_path: Path) -> None:
    kind = "BertForSequenceClassification"
    folder = with_head(tmp_path / "m", kind, ["no", "yes", "maybe"])
    made = optc.compile(folder, output=tmp_path / "a").path
    given = [*TEXTS, ("abc", "cba")]
    with optc.load(made) as classifier:
        assert isinstance(classifier, optc.TextClassifier)
        found = classifier.classify(given, top=2)
        with pytest.raises(RequestError, match="no list of texts"):
            classifier.classify("abc")
        with pytest.raises(RequestError, match="top: is 0"):
            classifier.classify(TEXTS, top=0)
        assert classifier.classify([]) == []
    for ours, row in zip(found, logits(folder, kind, given), strict=True):
        chances = softmax(row)
        order = np.argsort(-chances)[:2]
        assert [one.index for one in ours] == order.tolist()
        assert ours[0].label == ["no", "yes", "maybe"][order[0]]
        np.testing.assert_allclose([one.score for one in ours], chances[order], atol=1e-5)
    assert gates(made)["class_agreement"] == 1


def test_parts_of_texts_with_labels(labelled: Path, tmp_path: Path) -> None:
    kind, folder = "BertForTokenClassification", labelled
    made = optc.compile(folder, output=tmp_path / "a").path
    with optc.load(made) as labels:
        assert isinstance(labels, optc.TokenClassifier)
        found = labels.classify(TEXTS)
    for parts, row, text in zip(found, logits(folder, kind, TEXTS), TEXTS, strict=True):
        inside = [LABELS[i] for i in row[1:-1].argmax(-1)]  # a letter is a token
        shown = ["O"] * len(text)
        for part in parts:
            assert part.text == text[part.start : part.end]
            shown[part.start : part.end] = [part.label] * (part.end - part.start)
        assert shown == [label.rpartition("-")[2] for label in inside]
        begins = sum(label[0] == "B" for label in inside)
        assert len(parts) >= begins
        chances = softmax(row).max(-1)
        assert all(0 < part.score <= chances[1:-1].max() + 1e-6 for part in parts)
    assert gates(made)["label_agreement"] == 1


def test_one_label_ranks_texts(tmp_path: Path) -> None:
    kind = "BertForSequenceClassification"
    folder = with_head(tmp_path / "m", kind, ["LABEL_0"])
    made = optc.compile(folder, output=tmp_path / "a").path
    pairs = [("abc", text) for text in TEXTS]
    wanted = np.array([row[0] for row in logits(folder, kind, pairs)])
    with optc.load(made) as reranker:
        assert isinstance(reranker, optc.Reranker)
        found = reranker.rank("abc", TEXTS)
        assert reranker.rank("abc", TEXTS, top=2) == found[:2]
        with pytest.raises(RequestError, match="query: is no text"):
            reranker.rank(["abc"], TEXTS)
        assert reranker.rank("abc", []) == []
    assert [one.index for one in found] == np.argsort(-wanted).tolist()
    chances = 1 / (1 + np.exp(np.sort(-wanted)))
    np.testing.assert_allclose([one.score for one in found], chances, atol=1e-5)
    assert gates(made)["rank_agreement"] > 0.98  # letters alone: some scores are nearly equal
    assert "cosine_mean" not in gates(made)


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "BertForTokenClassification"])
def test_heads_stand_on_packed_rows(kind: str, labelled: Path, tmp_path: Path) -> None:
    folder = labelled if "Token" in kind else with_head(tmp_path / "m", kind, LABELS)
    made = optc.compile(folder, "encoder-int8", tmp_path / "a", gate=["none"])
    assert made.manifest.engines[0].backend == "tvm"
    with optc.load_tensors(made.path) as engine:
        assert engine.batch_invariant
    values = gates(made.path)
    agreement = "class_agreement" if "Sequence" in kind else "label_agreement"
    assert values[agreement] > 0.95
    assert values["sqnr_db"] > 15


def test_a_decoder_with_a_head(tmp_path: Path) -> None:
    """Its class is of the last token that is no padding."""
    reader = transformers.AutoTokenizer.from_pretrained(PYCODE)
    reader.pad_token = reader.eos_token
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(reader),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_labels=3,
        pad_token_id=reader.pad_token_id,
    )
    model = transformers.LlamaForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path / "model")
    reader.save_pretrained(tmp_path / "model")
    optc.compile(tmp_path / "model", "tensors-fp32", tmp_path / "a")
    texts = ["def f(x):", "import os", "a text that is longer than the others, and so pads them"]
    encoded = reader(texts, return_tensors="pt", padding=True, padding_side="right")
    with torch.no_grad():
        logits = model(encoded["input_ids"], attention_mask=encoded["attention_mask"]).logits
    expected = torch.softmax(logits, -1).numpy()
    with optc.load_tensors(tmp_path / "a") as classifier:
        assert isinstance(classifier, optc.TextClassifier)
        for row, found in zip(expected, classifier.classify(texts), strict=True):
            assert {one.index: one.score for one in found} == pytest.approx(
                dict(enumerate(row)), abs=1e-5
            )
