"""`TextToTextParams`: how texts are to be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypedDict

from optc.errors import RequestError
from optc.runtime.params import SamplingParams
from optc.runtime.structured.structure import Schema


@dataclass(frozen=True, kw_only=True)
class TextToTextParams:
    """Settings for writing texts.

    Attributes:
        max_tokens: Of a text, its end among them; None is what the model states.
        source_language: Code of the texts that are read, of models whose tokens name languages;
            None is the one that their tokenizer names.
        target_language: Code of the texts that are written; None is the one that the model states.
        truncate: Cut texts that are longer than the model reads, instead of refusing them.
        batch_size: Texts that are read together; and written together, where the decoder writes
            whole batches.
        beam_width: Beam search with so many beams, by transformers' rules, of which the best text
            is given; None writes the likeliest token each time.
        length_penalty: Of a beam search: texts of n tokens are ranked by log-probability / n **
            this.
        json_schema, regex, grammar, choice: What the text is, as of `optc.SamplingParams`; one of
            them, and no beams.
    """

    max_tokens: int | None = None
    source_language: str | None = None
    target_language: str | None = None
    truncate: bool = False
    batch_size: int = 8
    beam_width: int | None = None
    length_penalty: float = 1.0
    json_schema: Schema | None = None
    regex: str | None = None
    grammar: str | None = None
    choice: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise RequestError(
                f"{self.max_tokens} tokens of a text", where="max_tokens", hint="at least 1"
            )
        if self.batch_size < 1:
            raise RequestError(
                f"{self.batch_size} texts at once", where="batch_size", hint="at least 1"
            )
        self.params(1, 1.0)  # it says what is not usable

    @property
    def of_steps(self) -> list[str]:
        """Names of settings that differ from their defaults and that decoders of steps have."""
        named = (*_OF_BEAMS, *_STRUCTURES)
        return [one.name for one in fields(self) if one.name in named and self._differs(one.name)]

    def _differs(self, name: str) -> bool:
        return bool(getattr(self, name) != getattr(_DEFAULT, name))

    def params(self, max_tokens: int, repetition_penalty: float) -> SamplingParams:
        """The parameters of the engine's requests.

        Raises:
            RequestError: A value is not usable, or two do not go together.
        """
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=0,
            repetition_penalty=repetition_penalty,
            beam_width=self.beam_width,
            length_penalty=self.length_penalty,
            json_schema=self.json_schema,
            regex=self.regex,
            grammar=self.grammar,
            choice=self.choice,
        )


_OF_BEAMS = ("beam_width", "length_penalty")
_STRUCTURES = ("json_schema", "regex", "grammar", "choice")
_DEFAULT = TextToTextParams()


class TextToTextOptions(TypedDict, total=False):
    """Fields of `TextToTextParams`."""

    max_tokens: int | None
    source_language: str | None
    target_language: str | None
    truncate: bool
    batch_size: int
    beam_width: int | None
    length_penalty: float
    json_schema: Schema | None
    regex: str | None
    grammar: str | None
    choice: Sequence[str] | None
