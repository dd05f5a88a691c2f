"""Control tokens of a GGUF file, and those that its user defined: texts name them whole.

transformers writes tokens that are no letters of bytes in such letters, control tokens too, and
then adds those that it misses, such as BOS, behind the vocabulary. A chat template's text of one
would become an id that the model does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optc.importer.gguf.vocabulary import PREFIX, TOKENS

#: Of ``tokenizer.ggml.token_type``.
_CONTROL, _USER_DEFINED = 3, 4


def apply_added_tokens(tokenizer: dict[str, Any], metadata: Mapping[str, Any]) -> None:
    """Correct a tokenizer.json that transformers made of a GGUF file: control tokens and those of
    the user have the file's ids and texts, and nothing has an id behind the vocabulary.

    Args:
        tokenizer: Changed in place.
        metadata: Of the file, by key.
    """
    tokens = metadata[TOKENS]
    if metadata.get(f"{PREFIX}model") == "gpt2":
        _name_as_the_file(tokenizer, metadata)
    added = [one for one in tokenizer["added_tokens"] if one["id"] < len(tokens)]
    tokenizer["added_tokens"] = sorted(added, key=lambda one: int(one["id"]))


def _name_as_the_file(tokenizer: dict[str, Any], metadata: Mapping[str, Any]) -> None:
    """Rename tokens of the vocabulary that are in letters of bytes, and add what is missing."""
    vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
    names = {index: name for name, index in vocabulary.items()}
    added = {one["id"]: one for one in tokenizer["added_tokens"]}
    kinds = metadata.get(f"{PREFIX}token_type", ())
    for index, (token, kind) in enumerate(zip(metadata[TOKENS], kinds, strict=False)):
        if kind not in (_CONTROL, _USER_DEFINED) or not token:
            continue
        if names.get(index) != token:
            if vocabulary.get(names.get(index, "")) == index:
                del vocabulary[names[index]]
            vocabulary[token] = index
        if index not in added:
            flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            added[index] = {"id": index, "content": token, **flags, "special": kind == _CONTROL}
    tokenizer["added_tokens"] = list(added.values())
