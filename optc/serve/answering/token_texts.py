"""`TokenTexts`: the bytes of single tokens, for log-probabilities."""

from __future__ import annotations

import re
from functools import cached_property
from weakref import WeakKeyDictionary

from optc.runtime.text.tokenizer import Tokenizer

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
#: Stands for a space in SentencePiece's tokens.
_SPACE = "▁"


class TokenTexts:
    """The bytes of a tokenizer's tokens: of byte-level tokenizers, of those with SentencePiece's
    spaces and bytes, and the names of all other tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._backend = tokenizer.backend
        self._known: dict[int, bytes] = {}

    def bytes_of(self, token: int) -> bytes:
        """The bytes that a token adds to a text; a control token's are its name."""
        found = self._known.get(token)
        if found is None:
            found = self._known[token] = self._find(token)
        return found

    def text_of(self, token: int) -> str:
        """The same as text: U+FFFD for bytes that are part of a character."""
        return self.bytes_of(token).decode("utf-8", "replace")

    def _find(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        piece: str | None = self._backend.id_to_token(token)
        if piece is None:
            return b""
        if self._bytes is not None:
            return bytes(self._bytes[character] for character in piece if character in self._bytes)
        if byte := _BYTE.fullmatch(piece):
            return bytes([int(byte[1], 16)])
        return piece.replace(_SPACE, " ").encode()

    @cached_property
    def _added(self) -> dict[int, str]:
        added = self._backend.get_added_tokens_decoder()
        return {token: one.content for token, one in added.items()}

    @cached_property
    def _bytes(self) -> dict[str, int] | None:
        """The byte of each character of GPT-2's alphabet; None of other tokenizers."""
        decoder = self._backend.decoder
        if decoder is None or b'"ByteLevel"' not in decoder.__getstate__():
            return None
        plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        found = {chr(byte): byte for byte in plain}
        others = sorted(set(range(256)) - set(plain))
        return found | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_OF: WeakKeyDictionary[Tokenizer, TokenTexts] = WeakKeyDictionary()


def token_texts(tokenizer: Tokenizer) -> TokenTexts:
    """Those of a tokenizer, which are kept as long as it is."""
    if tokenizer not in _OF:
        _OF[tokenizer] = TokenTexts(tokenizer)
    return _OF[tokenizer]
