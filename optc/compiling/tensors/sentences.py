"""Sentences of the shipped text, as inputs of models that embed texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import tokenizers

from optc.proof.reference.text import default_documents
from optc.runtime.executable.tensors_interface import TensorsInterface
from optc.runtime.tensors.embedder import text_inputs

Array = npt.NDArray[Any]
#: Sentences in all, and of a call.
_COUNT, _BATCH = 256, 32
#: Shorter pieces are headings and numbers.
_LEAST_CHARACTERS = 30
_ENDS = re.compile(r"(?<=[.!?])\s+|\n\s*\n")


def sentences(count: int = _COUNT) -> list[str]:
    """So many different sentences, evenly spaced over the shipped text."""
    pieces = (piece.strip() for text in default_documents() for piece in _ENDS.split(text))
    found = list(dict.fromkeys(one for one in pieces if len(one) >= _LEAST_CHARACTERS))
    step = max(1, len(found) // count)
    return found[::step][:count]


def sentence_samples(
    tokenizer: str, interface: TensorsInterface
) -> tuple[Mapping[str, Array], ...]:
    """Batches of sentences; ``tokenizer`` is the JSON of one that truncates and pads."""
    reader = tokenizers.Tokenizer.from_str(tokenizer)
    texts = sentences()
    return tuple(
        text_inputs(reader, texts[start : start + _BATCH], interface)
        for start in range(0, len(texts), _BATCH)
    )
