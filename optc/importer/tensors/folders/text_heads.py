"""Heads of encoders of texts: which task a folder's class has, and what its scores are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from optc.artifact.tasks.classification import CLASSIFICATION
from optc.artifact.tasks.reranking import RERANKING
from optc.artifact.tasks.task import Task
from optc.artifact.tasks.token_classification import TOKEN_CLASSIFICATION
from optc.importer.tensors.images import labels_of
from optc.runtime.tensors.texts import TextScores

_SEQUENCES, _TOKENS = "ForSequenceClassification", "ForTokenClassification"
#: Where sentence-transformers says what its cross-encoders do with scores: now, and before.
_OWN, _OLD = ("sentence_transformers", "activation_fn"), "sbert_ce_default_activation_function"


def head_of(name: str, config: Any) -> tuple[Task, TextScores] | None:
    """The task of a class of transformers, and what its scores are; None where it has no such head.

    One score of a text, or of two, is one to rank by: a probability, as sentence-transformers'
    cross-encoders take it, unless the folder says that it is none.

    Args:
        name: Of the class.
        config: transformers' own, which numbers labels where config.json does not name them.
    """
    labels = labels_of({"id2label": config.id2label})
    if name.endswith(_TOKENS):
        return TOKEN_CLASSIFICATION, TextScores(labels)
    if not name.endswith(_SEQUENCES):
        return None
    kind = getattr(config, "problem_type", None)
    if config.num_labels == 1:
        plain = _activation(config.to_dict()).endswith("Identity") or kind == "regression"
        return RERANKING, TextScores(labels, "plain" if plain else "sigmoid")
    known: dict[str | None, Literal["sigmoid", "plain"]] = {
        "multi_label_classification": "sigmoid",
        "regression": "plain",
    }
    return CLASSIFICATION, TextScores(labels, known.get(kind, "softmax"))


def _activation(config: Mapping[str, Any]) -> str:
    own = config.get(_OWN[0])
    stated = own.get(_OWN[1]) if isinstance(own, Mapping) else None
    return str(stated or config.get(_OLD) or "")
