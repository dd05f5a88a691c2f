"""The tokens of a byte-pair encoding that must stay so that others do.

Byte-pair encoding (Sennrich et al., 2016, arXiv 1508.07909) starts at symbols and applies, again
and again, the merge of the lowest rank that a neighbouring pair has. No merge of a word crosses the
bounds of its final tokens, so each token comes to be as it would alone. With all symbols and
results on that way kept, a word whose tokens stay is encoded as before: the merges that are left
out were not applied in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from optc.errors import InputError, UnsupportedError

Pair = tuple[str, str]
#: SentencePiece's mark of a word's beginning; decoders make a space of this token alone.
_SPACE = "▁"


@dataclass(frozen=True)
class BytePairs:
    """The model of a ``tokenizer.json``.

    Attributes:
        vocab: Ids by token.
        ranks: Of merges: the lowest is applied first.
        byte_fallback: Symbols that are no token are spelled in tokens ``<0x41>`` of their bytes.
        unknown: Token of symbols that nothing spells; None where there is none.
    """

    vocab: Mapping[str, int]
    ranks: Mapping[Pair, int]
    byte_fallback: bool
    unknown: str | None

    @classmethod
    def read(cls, model: Mapping[str, Any], where: str) -> BytePairs:
        """The key ``model`` of a ``tokenizer.json``.

        Args:
            model: Its value.
            where: Names the file in messages.

        Raises:
            UnsupportedError: It is of another kind, or joins symbols otherwise.
            InputError: It is damaged.
        """
        kind = model.get("type")
        if kind != "BPE":
            raise UnsupportedError(
                f"a tokenizer of the kind {kind} cannot be trimmed",
                where=where,
                hint="byte-pair encodings (BPE) can; take a recipe that keeps all tokens",
            )
        for key in ("continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(key):
                raise UnsupportedError(
                    f"a tokenizer with {key}={model[key]!r} cannot be trimmed",
                    where=where,
                    hint="take a recipe that keeps all tokens",
                )
        try:
            pairs = [_pair(merge) for merge in model["merges"]]
            vocab = {str(token): int(number) for token, number in model["vocab"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"its vocabulary or merges are damaged: {type(error).__name__}: {error}",
                where=where,
                hint="give the model's own tokenizer.json",
            ) from error
        ranks = {pair: rank for rank, pair in reversed(list(enumerate(pairs)))}
        return cls(vocab, ranks, bool(model.get("byte_fallback")), model.get("unk_token"))

    def alphabet(self) -> set[str]:
        """Tokens without which a text could not be spelled: of single bytes where they spell what
        no other token does, else of all single characters; the unknown token; and in any case
        those of ASCII, and what SentencePiece has for a space."""
        found = set(self.vocab.keys() & {self.unknown})
        single = {token for token in self.vocab if len(token) == 1}
        spelled = {f"<0x{byte:02X}>" for byte in range(256)}
        if self.byte_fallback and spelled <= self.vocab.keys():
            few = {token for token in single if token.isascii() or token == _SPACE}
            return found | spelled | few
        return found | single

    def closed(self, tokens: Iterable[str]) -> set[str]:
        """``tokens`` of the vocabulary, and those that they are made of."""
        found: set[str] = set()
        for token in tokens:
            found |= {token} | self._made_of(token)
        return found

    def merges_among(self, tokens: set[str]) -> list[Pair]:
        """The merges, in their order, whose parts and result are among ``tokens``."""
        kept = (
            pair
            for pair in self.ranks
            if pair[0] in tokens and pair[1] in tokens and "".join(pair) in tokens
        )
        return sorted(kept, key=lambda pair: self.ranks[pair])

    def _made_of(self, token: str) -> set[str]:
        """Symbols, and results of merges, on the way to a token; itself apart if it is no such."""
        symbols = [symbol for character in token for symbol in self._symbols(character)]
        found = set(symbols)
        while len(symbols) > 1:
            ranked = [
                (self.ranks[pair], place)
                for place, pair in enumerate(pairwise(symbols))
                if pair in self.ranks
            ]
            if not ranked:
                break
            place = min(ranked)[1]
            symbols[place : place + 2] = ["".join(symbols[place : place + 2])]
            found.add(symbols[place])
        return found & self.vocab.keys()

    def _symbols(self, character: str) -> list[str]:
        if character in self.vocab or not self.byte_fallback:
            return [character]
        return [f"<0x{byte:02X}>" for byte in character.encode()]


def _pair(merge: Any) -> Pair:
    """A merge as files have it: two tokens, or one text of them with a space between."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return str(left), str(right)
