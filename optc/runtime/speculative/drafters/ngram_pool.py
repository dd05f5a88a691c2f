"""The tokens that followed short contexts in all texts that an engine has seen lately.

The n-grams of a served model repeat from one request to the next: where a text has no longer match
of its own, they are the next best drafts (compare the pool of Fu et al., 2024, and the global trees
of Oliaro et al., 2024, SuffixDecoding). Drafts never change what is drawn, but they can be timed:
texts of different salts share nothing here, as they share no cached prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

#: Longest contexts, in tokens.
LONGEST = 3
#: Contexts of one generation: of two, a pool holds at least the latest 20,000 tokens of text in
#: some 15 MB.
_CONTEXTS = 1 << 16


class NGramPool:
    """The token that last followed each context of one to `LONGEST` tokens.

    Bounded: a full generation of contexts replaces the one before. Contexts are kept by their
    hashes; two that share one cost a wrong draft.

    Args:
        contexts: Of one generation.
    """

    def __init__(self, contexts: int = _CONTEXTS) -> None:
        self._most = contexts
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def __len__(self) -> int:
        """Contexts of both generations."""
        return len(self._young) + len(self._old)

    def read(self, salt: str, tokens: Sequence[int], start: int) -> None:
        """Take note of what ``tokens`` [n] are from ``start`` on; those before are context."""
        piece = max(1, self._most // LONGEST)
        for first in range(max(1, start), len(tokens), piece):
            self._note(salt, tokens, first, min(first + piece, len(tokens)))
            if len(self._young) >= self._most:
                self._old, self._young = self._young, {}

    def _note(self, salt: str, tokens: Sequence[int], start: int, stop: int) -> None:
        """Note the tokens from ``start`` to ``stop``. No loop over them here: prompts are long."""
        for length in range(1, LONGEST + 1):
            first = max(start, length)
            columns = [
                tokens[first - back : max(first, stop) - back] for back in range(length, 0, -1)
            ]
            contexts = map(hash, zip(repeat(salt), *columns, strict=False))
            self._young.update(zip(contexts, tokens[first:stop], strict=True))

    def follower(self, salt: str, tokens: Sequence[int], longer_than: int) -> tuple[int, int]:
        """The token that last followed the longest known end of ``tokens``, and that end's length;
        length 0 if none of more than ``longer_than`` tokens is known."""
        for length in range(min(LONGEST, len(tokens)), longer_than, -1):
            context = hash((salt, *tokens[len(tokens) - length :]))
            token = self._young.get(context, self._old.get(context))
            if token is not None:
                return token, length
        return -1, 0
