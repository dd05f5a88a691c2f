"""Conventions of a model that turns texts into texts, which its artifact keeps."""

from __future__ import annotations

from msgspec import Struct

from optc.errors import RequestError
from optc.system.foreign.typed_json import Count, Positive

#: File of an artifact that holds them.
CONVENTIONS_FILE = "text-to-text.json"


class TextConventions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Conventions of tokens, as the folder's generation settings state them.

    Attributes:
        start: Token that the decoder reads first.
        ends: Tokens that end a text.
        first: Token that every text begins with; None where there is none.
        last: Token that stands at the last place of a text that is as long as it may be.
        suppressed: Tokens that are never written.
        suppressed_first: Tokens that do not come first.
        least_length: Tokens before an end, the start among them.
        least_tokens: Tokens before an end, without the start.
        no_repeat: Runs of so many tokens are not written twice; 0 are all.
        repetition_penalty: By which logits of tokens that were written are divided, or multiplied
            where they are negative (Keskar et al., 2019, arXiv:1909.05858); 1 changes nothing.
        most_tokens: Of a text where a request does not say, without the start.
        positions: Of the decoder, which bound a text with its start.
        source: Tokens of a text that is read, at most.
        languages: Tokens of languages by code, such as ``deu_Latn``; empty where the model's
            tokens name none.
    """

    start: Count
    ends: tuple[Count, ...] = ()
    first: Count | None = None
    last: Count | None = None
    suppressed: tuple[Count, ...] = ()
    suppressed_first: tuple[Count, ...] = ()
    least_length: Count = 0
    least_tokens: Count = 0
    no_repeat: Count = 0
    repetition_penalty: float = 1.0
    most_tokens: Positive = 256
    positions: Positive = 1024
    source: Positive = 1024
    languages: dict[str, Count] = {}

    def language(self, code: str, where: str) -> int:
        """The token of a language.

        Raises:
            RequestError: The model does not know it.
        """
        if not self.languages:
            raise RequestError(
                "the model's tokens name no languages", where=where, hint="leave it out"
            )
        if code not in self.languages:
            known = sorted(self.languages)
            some = ", ".join(known[:8]) + (" …" if len(known) > 8 else "")
            raise RequestError(
                f"the model does not know {code!r}", where=where, hint=f"one of {some}"
            )
        return self.languages[code]

    def prompt(self, target: str | None) -> tuple[int, int | None]:
        """The start, and the token that a text has to begin with, for a language to write.

        Models whose start is a language's token start with that of the language; others begin
        their texts with it.

        Raises:
            RequestError: The model does not know the language.
        """
        if target is None:
            return self.start, self.first
        token = self.language(target, "target_language")
        if self.start in self.languages.values():
            return token, self.first
        return self.start, token
