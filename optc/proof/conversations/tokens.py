"""Texts and conversations as ids of tokens.

A large vocabulary takes seconds to read, and hundreds of MiB while it is open: what a compile asks
for several times is kept, the tokenizer is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from optc.errors import InputError
from optc.proof.conversations.conversation import Conversation, no_template
from optc.proof.conversations.read import Document
from optc.runtime.executable.executable import Int32
from optc.runtime.text.rust_errors import RustError, rust_errors

if TYPE_CHECKING:  # a heavy import that random ids do not need
    import tokenizers

    from optc.proof.conversations.chat import Chat

_T = TypeVar("_T")

#: Streams that are kept, and ids that texts begin with, by the digests of what they are made of.
_streams: dict[str, Int32] = {}
_firsts: dict[str, int | None] = {}
_KEPT = 4


def token_stream(
    documents: Iterable[Document],
    tokenizer_file: Path,
    bos: int | None,
    eos: int | None,
    chat: Chat | None = None,
) -> Int32:
    """All documents as one stream of ids: texts framed by BOS and EOS where the model has them,
    conversations as its chat template renders them.

    Args:
        documents: Texts and conversations.
        tokenizer_file: tokenizer.json.
        bos: Id put before every text, if the model has one.
        eos: Id put after every text, if the model has one.
        chat: Renders conversations; None where the model has no template.

    Raises:
        InputError: The tokenizer file cannot be read, the tokenizer gives up on a document, or a
            conversation cannot be rendered.
    """
    return _encode(_read(tokenizer_file), documents, tokenizer_file, bos, eos, chat)


def kept_stream(
    documents: Sequence[Document],
    tokenizer_file: Path,
    bos: int | None,
    eos: int | None,
    chat: Chat | None = None,
) -> Int32:
    """`token_stream` of documents that may be asked for again; not to be written to."""
    content = _read(tokenizer_file)
    if any(isinstance(one, Conversation) for one in documents):  # templates are no part of a key
        return _encode(content, documents, tokenizer_file, bos, eos, chat)
    digest = hashlib.sha256(content)
    for one in (bos, eos, *documents):
        said = str(one).encode("utf-8", "surrogatepass")
        digest.update(b"%d " % len(said) + said)
    key = digest.hexdigest()
    if key not in _streams:
        stream = _encode(content, documents, tokenizer_file, bos, eos, chat)
        stream.setflags(write=False)
        _keep(_streams, key, stream)
    return _streams[key]


def window_start(tokenizer_file: Path, bos: int | None) -> int | None:
    """The id that begins every window: BOS where the tokenizer puts it before a text of its own
    accord, else None. Models of such tokenizers never see a text without it; their first token
    takes much attention, and its activations are the largest that there are.

    Raises:
        InputError: The tokenizer file cannot be read.
    """
    if bos is None:
        return None
    content = _read(tokenizer_file)
    with _named(tokenizer_file):
        return bos if _first_id(content) == bos else None


def _encode(
    content: bytes,
    documents: Iterable[Document],
    tokenizer_file: Path,
    bos: int | None,
    eos: int | None,
    chat: Chat | None,
) -> Int32:
    import tokenizers

    head = [] if bos is None else [bos]
    tail = [] if eos is None else [eos]
    stream: list[int] = []
    with _named(tokenizer_file):
        tokenizer = tokenizers.Tokenizer.from_str(content.decode())
        for one in documents:
            if isinstance(one, Conversation):
                stream += _conversation(one, chat)
            else:
                stream += head + tokenizer.encode(one, add_special_tokens=False).ids + tail
        if bos is not None:  # `window_start` follows
            _first_id(content, tokenizer)
    return np.asarray(stream, np.int32)


def _conversation(conversation: Conversation, chat: Chat | None) -> list[int]:
    if chat is None:
        raise no_template(conversation)
    return chat.encode(conversation)


def _first_id(content: bytes, opened: tokenizers.Tokenizer | None = None) -> int | None:
    """The id that a text begins with."""
    import tokenizers

    key = hashlib.sha256(content).hexdigest()
    if key not in _firsts:
        tokenizer = opened or tokenizers.Tokenizer.from_str(content.decode())
        _keep(_firsts, key, next(iter(tokenizer.encode("a").ids), None))
    return _firsts[key]


def _keep(known: dict[str, _T], key: str, value: _T) -> None:
    known[key] = value
    while len(known) > _KEPT:
        known.pop(next(iter(known)))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the tokenizer: {error.strerror}", where=str(path)) from error


@contextmanager
def _named(tokenizer_file: Path) -> Iterator[None]:
    """An InputError that names the file stands for anything that the tokenizer raises."""
    try:
        with rust_errors():
            yield
    except (RustError, UnicodeDecodeError) as error:
        raise InputError(f"the tokenizer gives up: {error}", where=str(tokenizer_file)) from error
