"""Bytes of the artifact that a compile would write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from optc.proof.roofline.estimate import EngineEstimate

#: Of manifest, report, provenance and SBOM, without what grows with the number of tensors.
_DOCUMENT_BYTES = 32_000
#: Of manifest.json, for each tensor of the weights: its name, type, shape and place.
_TENSOR_BYTES = 280
#: Files of a tokenizer that the artifact's one is made of, by preference.
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")


def artifact_bytes(estimate: EngineEstimate, tokenizer_files: Sequence[Path]) -> int:
    """An artifact with one engine.

    Weights and libraries are counted, as they are laid out; code and documents are what they
    usually are (`EngineEstimate.code_bytes`), and the tokenizer is as large as its source.

    Args:
        estimate: Of the engine.
        tokenizer_files: Of the model's folder.
    """
    documents = _DOCUMENT_BYTES + _TENSOR_BYTES * estimate.tensors
    return estimate.file_bytes + estimate.code_bytes + documents + _tokenizer(tokenizer_files)


def _tokenizer(files: Sequence[Path]) -> int:
    by_name = {file.name: file for file in files}
    found = (by_name[name].stat().st_size for name in _TOKENIZERS if name in by_name)
    return next(found, 0)
