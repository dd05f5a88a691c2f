"""The tokenizer of another GGUF file of the same model, written as that file has it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optc.artifact import Artifact
from optc.errors import InputError
from optc.importer.gguf.file import metadata_of, open_gguf

if TYPE_CHECKING:
    from gguf import GGUFReader, GGUFWriter, ReaderField

_PREFIX = "tokenizer."
_TOKENS = "tokenizer.ggml.tokens"
_TEMPLATE = "tokenizer.chat_template"
_OPTION = "--tokenizer-from"


def check_file(file: Path, artifact: Artifact) -> None:
    """Check that a file has the tokens of an artifact.

    Raises:
        InputError: It is no GGUF file, or has other tokens.
        UnavailableError: The package gguf is missing.
    """
    if not file.is_file():
        raise InputError(f"no such file: {file}", where=_OPTION, hint="a GGUF file of this model")
    reader = open_gguf(file)
    field = reader.fields.get(_TOKENS)
    if field is None:
        raise InputError(f"{file} has no tokenizer", where=_OPTION, hint="a file of a whole model")
    theirs = [text.decode(errors="replace") for text in _texts(reader, field)]
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
    from gguf import GGUFValueType

    reader = open_gguf(file)
    plain = metadata_of(reader, _PREFIX)
    for name, field in reader.fields.items():
        if not name.startswith(_PREFIX) or name.startswith(_TEMPLATE):
            continue
        kind = field.types[0]
        if kind != GGUFValueType.ARRAY:
            writer.add_key_value(name, plain[name], kind)
            continue
        inner = field.types[-1]
        values: list[Any] = plain[name] or list(_values(reader, field, inner))
        if values:
            writer.add_key_value(name, values, kind, inner)
    template = artifact.chat_template() or plain.get(_TEMPLATE)
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


def _values(reader: GGUFReader, field: ReaderField, inner: Any) -> Iterator[Any]:
    """The elements of a list that the importer's reader has left out, as it is long."""
    from gguf import GGUFValueType

    if inner == GGUFValueType.STRING:
        yield from _texts(reader, field)
        return
    count, at = _list_at(reader, field)
    kind = np.dtype(reader.gguf_scalar_to_np[inner]).newbyteorder("<")
    yield from np.frombuffer(reader.data, kind, count, at).tolist()


def _texts(reader: GGUFReader, field: ReaderField) -> Iterator[bytes]:
    count, at = _list_at(reader, field)
    data = reader.data.data
    for _ in range(count):
        (size,) = struct.unpack_from("<Q", data, at)
        yield bytes(data[at + 8 : at + 8 + size])
        at += 8 + size


def _list_at(reader: GGUFReader, field: ReaderField) -> tuple[int, int]:
    """How many elements a list has, and where they begin: behind its key, its type, theirs and
    their count. `optc.importer.gguf.structure` has checked that they lie in the file."""
    at = field.offset + 8 + len(field.name.encode()) + 4
    _, count = struct.unpack_from("<IQ", reader.data.data, at)
    return int(count), at + 12
