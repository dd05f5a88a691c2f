"""Heads of encoders, told by config.json."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import BertConfig

from optc.importer.tensors.folders.text_heads import head_of

ONE = {"id2label": {"0": "LABEL_0"}}
MODERN = {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
OLD = {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}
SEQUENCES, TOKENS = "BertForSequenceClassification", "BertForTokenClassification"


@pytest.mark.parametrize(
    ("name", "stated", "task", "scores"),
    [
        (SEQUENCES, {}, "classification", "softmax"),
        (SEQUENCES, {"problem_type": "multi_label_classification"}, "classification", "sigmoid"),
        (SEQUENCES, {"num_labels": 3, "problem_type": "regression"}, "classification", "plain"),
        (SEQUENCES, ONE, "reranking", "sigmoid"),
        (SEQUENCES, {"num_labels": 1}, "reranking", "sigmoid"),  # without names
        (SEQUENCES, ONE | {"problem_type": "regression"}, "reranking", "plain"),
        (SEQUENCES, ONE | MODERN, "reranking", "plain"),
        (SEQUENCES, ONE | OLD, "reranking", "plain"),
        (TOKENS, ONE, "token-classification", "softmax"),
    ],
)
def test_heads(name: str, stated: dict[str, Any], task: str, scores: str) -> None:
    found = head_of(name, BertConfig(**stated))
    assert found is not None
    assert (found[0].name, found[1].scores) == (task, scores)


def test_other_classes_have_none() -> None:
    assert head_of("BertForMaskedLM", BertConfig(**ONE)) is None
