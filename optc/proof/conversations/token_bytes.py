"""`TokenBytes`: the text of each token in bytes, and the tokens with which a text may begin.

At a point where one of some known texts must follow, a grammar that allows just those (a choice of
structured output) allows the tokens that are a beginning of one. llguidance, which makes the masks
of structured output, knows the bytes of every tokenizer's tokens, so that here they are looked up
instead of compiling thousands of such grammars.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from optc.errors import RequestError, UnavailableError
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.text.tokenizer import Tokenizer


class TokenBytes:
    """The bytes of a tokenizer's tokens.

    Args:
        tokenizer: The model's.
        vocab_size: Tokens that the model has logits for; others are in no result.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._size = vocab_size

    def of(self, ids: Iterable[int]) -> bytes:
        """The text of tokens; a control token is its name."""
        return b"".join(self._bytes[token] for token in ids)

    def beginnings(self, text: bytes) -> tuple[int, ...]:
        """Tokens that ``text`` may begin with, the longest last: those that a constraint to this
        text allows. A control token counts where its whole name stands."""
        ends = range(1, min(len(text), self._longest) + 1)
        return tuple(token for end in ends for token in self._ids.get(text[:end], ()))

    @cached_property
    def _bytes(self) -> list[bytes]:
        try:
            table = GrammarCompiler(self._tokenizer, self._size, ()).token_table()
        except RequestError as error:
            raise UnavailableError(
                f"no decisions with this tokenizer: {error.message}", where="conversations"
            ) from error
        found = [table.decode_bytes([token]) for token in range(table.vocab_size)]
        for token, added in self._tokenizer.backend.get_added_tokens_decoder().items():
            found[token] = added.content.encode()
        return found

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._ids), default=0)

    @cached_property
    def _ids(self) -> dict[bytes, list[int]]:
        """Tokens by their bytes. Control tokens come behind others of the same bytes: the template
        has written them where it is read."""
        control = frozenset(self._tokenizer.control.ids.values())
        found: dict[bytes, list[int]] = {}
        for token in sorted(range(self._size), key=control.__contains__):
            if self._bytes[token]:
                found.setdefault(self._bytes[token], []).append(token)
        return found
