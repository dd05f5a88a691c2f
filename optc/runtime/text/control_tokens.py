"""`ControlTokens`: encodings in which no text can write the tokens that control a model.

A tokenizer turns the text of a special token, such as ``<|end_of_text|>``, into that token wherever
it stands, and those of some models find it among their ordinary pieces as well. So there is a
second tokenizer, equal but that control tokens have names that nobody can guess: what it finds of
them, the caller has put there. It is made for the first text that needs it.
"""

from __future__ import annotations

import json
import re
import secrets
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import RLock
from typing import Any, NamedTuple

import tokenizers

from optc.errors import RequestError
from optc.runtime.text.chat_values import unmarked
from optc.runtime.text.rust_errors import RustError, rust_errors


class ControlTokens:
    """The control tokens of a tokenizer: its special ones and some others.

    Args:
        backend: The tokenizer.
        others: Texts that may be added tokens which the tokenizer does not call special, but
            which control the model all the same.
    """

    def __init__(self, backend: tokenizers.Tokenizer, others: Iterable[str] = ()) -> None:
        self._backend = backend
        self._lock = RLock()  # a signal handler may come in again
        self._renamed: tokenizers.Tokenizer | None = None
        wanted = frozenset(others)
        self.ids = {
            token.content: token_id
            for token_id, token in backend.get_added_tokens_decoder().items()
            if token.content and (token.special or token.content in wanted)
        }
        nonce = secrets.token_hex(16)
        self._names = {text: f"{nonce}{index:06d}" for index, text in enumerate(self.ids)}

    def encode_text(self, text: str, add_special_tokens: bool) -> list[int]:
        """Token ids of ``text``, all of it ordinary text.

        Args:
            text: The text.
            add_special_tokens: Add those that the tokenizer's post-processor adds.

        Raises:
            RequestError: The text is not valid Unicode, or the tokenizer gives up on it.
        """
        encoding = encode_one(self._backend, text)
        if not self._all_ids.isdisjoint(encoding.ids):
            encoding = encode_one(self._without_names(), text)
        return with_special_tokens(self._backend, encoding, add_special_tokens)

    def encode_parts(self, text: str, restored: dict[str, str]) -> list[int]:
        """Token ids of a text in which control tokens count but where they are marked.

        Args:
            text: Its control texts are tokens.
            restored: What single characters of it stand for, once control texts have been found.

        Raises:
            RequestError: The text is not valid Unicode, or the tokenizer gives up on it.
        """
        spans = list(self._named(text))
        renamed = self._without_names()
        encoding = encode_one(renamed, unmarked(_joined(spans), restored), offsets=True)
        found = [
            o for i, o in zip(encoding.ids, encoding.offsets, strict=True) if i in self._all_ids
        ]
        lost = _lost(spans, found)
        if lost:  # a tokenizer that normalizes first may take no control token at such a place
            spans = [s._replace(shown=s.written) if s in lost else s for s in spans]
            encoding = encode_one(renamed, unmarked(_joined(spans), restored))
        ids: list[int] = encoding.ids
        return ids

    def description(self) -> str:
        """The tokenizer as JSON, its control tokens, all of them special, under the other names:
        for who cuts texts or matches them with the texts of tokens.

        Raises:
            RequestError: The tokenizer gives up on it.
        """
        return self._without_names().to_str()

    def shown(self, message: str) -> str:
        """A message about what `description` says, with the names that users know."""
        for text, name in self._names.items():
            message = message.replace(name, text)
        return message

    def _named(self, text: str) -> Iterator[_Span]:
        """The text, its control texts under their other names."""
        at = place = 0
        for match in self._pattern.finditer(text):
            for written, shown in (
                (text[at : match.start()],) * 2,
                (match.group(), self._names[match.group()]),
            ):
                yield _Span(written, shown, place)
                place += len(shown)
            at = match.end()
        yield _Span(text[at:], text[at:], place)

    @cached_property
    def _all_ids(self) -> frozenset[int]:
        return frozenset(self.ids.values())

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.ids, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def _without_names(self) -> tokenizers.Tokenizer:
        """The tokenizer whose control tokens have other names."""
        with self._lock:
            if self._renamed is None:
                self._renamed = _rename(self._backend, self._names)
            return self._renamed


class _Span(NamedTuple):
    """A piece of a text: what is written there, what the tokenizer is shown instead, and where
    that begins."""

    written: str
    shown: str
    place: int


def _joined(spans: Iterable[_Span]) -> str:
    return "".join(span.shown for span in spans)


def _lost(spans: Iterable[_Span], found: Sequence[tuple[int, int]]) -> set[_Span]:
    """Names of control tokens that are in none of the places [(begin, end)] where some were."""
    begins = [begin for begin, _ in found]
    lost = set()
    for span in spans:
        before = bisect_right(begins, span.place) - 1
        covered = before >= 0 and found[before][1] >= span.place + len(span.shown)
        if span.shown != span.written and not covered:
            lost.add(span)
    return lost


def added_texts(backend: tokenizers.Tokenizer) -> list[str]:
    """Texts of the added tokens, but for those of whitespace, which are text in any case."""
    added = backend.get_added_tokens_decoder().values()
    return [token.content for token in added if token.content.strip()]


def encode_one(
    backend: tokenizers.Tokenizer, text: str, *, offsets: bool = False
) -> tokenizers.Encoding:
    """Encode ``text`` as it stands, with what the tokenizer takes for special tokens in it; where
    in the text each token is costs time.

    Raises:
        RequestError: The text is not valid Unicode, or the tokenizer gives up on it.
    """
    try:
        text.encode("utf-8")  # the tokenizer takes a lone surrogate for no text at all
    except UnicodeEncodeError as error:
        raise RequestError(f"not valid Unicode: {error.reason}", where="prompt") from error
    # Of a batch, because only then others may run Python meanwhile: the engine's thread.
    encode = backend.encode_batch if offsets else backend.encode_batch_fast
    with _given_up():
        return encode([text], add_special_tokens=False)[0]


def with_special_tokens(
    backend: tokenizers.Tokenizer, encoding: tokenizers.Encoding, add: bool
) -> list[int]:
    """The ids of what `encode_one` gave, with those that the post-processor adds if ``add``.

    Raises:
        RequestError: The tokenizer gives up on it.
    """
    with _given_up():
        ids: list[int] = backend.post_process(encoding, None, add).ids
        return ids


@contextmanager
def _given_up() -> Iterator[None]:
    try:
        with rust_errors():
            yield
    except RustError as error:
        message = f"the tokenizer cannot encode the text: {error}"
        raise RequestError(message, where="prompt", hint="shorten or change it") from error


def _rename(backend: tokenizers.Tokenizer, names: dict[str, str]) -> tokenizers.Tokenizer:
    """A tokenizer that gives the same ids, but finds these tokens under other names.

    They are renamed among the model's pieces too: Unigram and word models would find them there.
    """
    described: dict[str, Any] = json.loads(backend.to_str())
    for token in described["added_tokens"]:
        if token["content"] in names:
            token |= {"content": names[token["content"]], "special": True}
    model = described["model"]
    pieces = model["vocab"]
    if isinstance(pieces, dict):
        model["vocab"] = {names.get(piece, piece): token_id for piece, token_id in pieces.items()}
    else:
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in pieces]
    unknown = model.get("unk_token")
    if unknown is not None:
        model["unk_token"] = names.get(unknown, unknown)
    with _given_up():
        renamed: tokenizers.Tokenizer = tokenizers.Tokenizer.from_str(json.dumps(described))
    renamed.no_truncation()
    renamed.no_padding()
    return renamed
