"""Comparison of two ``tokenizer.json``: a target and its draft must give the same ids."""

from __future__ import annotations

from pathlib import Path

from optc.artifact.jsonio import read_json

#: What ids depend on; truncation, padding and the template of special tokens do not change them.
_PARTS = ("model", "added_tokens", "normalizer", "pre_tokenizer")


def tokenizer_difference(first: Path, second: Path) -> str:
    """The first part in which two tokenizers differ; empty if ids mean the same to both.

    Raises:
        ArtifactError: One of them is not JSON that can be used.
    """
    if first.read_bytes() == second.read_bytes():
        return ""
    ours, theirs = read_json(first), read_json(second)
    return next((part for part in _PARTS if ours.get(part) != theirs.get(part)), "")
