"""The tokenizer of another GGUF file of the same model, written as that file has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from optc.artifact.artifact import Artifact
from optc.errors import InputError
from optc.importer.gguf.file import open_gguf, vocabulary_of
from optc.importer.gguf.vocabulary import TEMPLATE, TOKENS

if TYPE_CHECKING:
    from gguf import GGUFWriter

_OPTION = "--tokenizer-from"


def check_file(file: Path, artifact: Artifact) -> None:
    """Check that a file has the tokens of an artifact.

    Raises:
        InputError: It is no GGUF file, or has other tokens.
        UnavailableError: The package gguf is missing.
    """
    if not file.is_file():
        raise InputError(f"no such file: {file}", where=_OPTION, hint="a GGUF file of this model")
    theirs = vocabulary_of(open_gguf(file)).get(TOKENS)
    if theirs is None:
        raise InputError(f"{file} has no tokenizer", where=_OPTION, hint="a file of a whole model")
    for index, token in _tokens(artifact).items():
        if index >= len(theirs) or _spaced(theirs[index]) != _spaced(token):
            found = theirs[index] if index < len(theirs) else "nothing"
            raise InputError(
                f"{file} is of another model: token {index} is {found!r}, not {token!r}",
                where=_OPTION,
                hint="give a GGUF file of the model that was compiled",
            )


def add_taken_over(writer: GGUFWriter, file: Path, artifact: Artifact) -> None:
    """Write the tokenizer of ``file``, and the artifact's chat template if it has one.

    Raises:
        InputError: The file is damaged.
    """
    reader = open_gguf(file)
    found = vocabulary_of(reader)
    for name, value in found.items():
        if not name.startswith(TEMPLATE) and value != []:
            kind, *inner = reader.fields[name].types
            writer.add_key_value(name, value, kind, inner[-1] if inner else None)
    template = artifact.chat_template() or found.get(TEMPLATE)
    if template:
        writer.add_chat_template(template)


def _tokens(artifact: Artifact) -> Mapping[int, str]:
    """Those that tokenizer.json has, by id; those of a trained vocabulary are in the model."""
    file = artifact.tokenizer_file()
    read = {} if file is None else json.loads(file.read_text(encoding="utf-8"))
    vocabulary = (read.get("model") or {}).get("vocab") or {}
    if isinstance(vocabulary, list):  # with scores
        vocabulary = {token: index for index, (token, _) in enumerate(vocabulary)}
    found = {index: token for token, index in vocabulary.items()}
    return found | {one["id"]: one["content"] for one in read.get("added_tokens") or ()}


def _spaced(token: str) -> str:
    """Files write spaces as a sign of their own, in added tokens too."""
    return token.replace("\u2581", " ")
