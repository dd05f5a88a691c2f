"""Heads of encoders of texts: which task a folder's class has, and what its scores are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optc.artifact.tasks.classification import CLASSIFICATION
from optc.artifact.tasks.reranking import RERANKING
from optc.artifact.tasks.task import Task
from optc.artifact.tasks.token_classification import TOKEN_CLASSIFICATION
from optc.importer.tensors.images import labels_of
from optc.runtime.tensors.texts import TextScores

_SEQUENCES, _TOKENS = "ForSequenceClassification", "ForTokenClassification"
#: Where sentence-transformers says what its cross-encoders do with scores: now, and before.
_OWN, _OLD = ("sentence_transformers", "activation_fn"), "sbert_ce_default_activation_function"


def head_of_folder(config: Mapping[str, Any]) -> tuple[Task, TextScores] | None:
    """The task of a class of transformers, and what its scores are; None where it has no such head.

    One score of a text, or of two, is one to rank by: a probability, as sentence-transformers'
    cross-encoders take it, unless the folder says that it is none.

    Args:
        config: Of config.json.
    """
    name = str(config["architectures"][0])
    labels = labels_of(config)
    if name.endswith(_TOKENS):
        return TOKEN_CLASSIFICATION, TextScores(labels)
    if not name.endswith(_SEQUENCES):
        return None
    if len(labels) == 1:
        plain = _activation(config).endswith("Identity") or _kind(config) == "regression"
        return RERANKING, TextScores(labels, "plain" if plain else "sigmoid")
    apart = _kind(config) == "multi_label_classification"
    return CLASSIFICATION, TextScores(labels, "sigmoid" if apart else "softmax")


def _kind(config: Mapping[str, Any]) -> str:
    return str(config.get("problem_type") or "")


def _activation(config: Mapping[str, Any]) -> str:
    own = config.get(_OWN[0])
    stated = own.get(_OWN[1]) if isinstance(own, Mapping) else None
    return str(stated or config.get(_OLD) or "")
