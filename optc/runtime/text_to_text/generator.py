"""`TextToTextGenerator`: texts become other texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from optc.errors import RequestError
from optc.runtime.checks import checked_texts
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.text_to_text.conventions import TextConventions
from optc.runtime.text_to_text.params import TextToTextOptions, TextToTextParams
from optc.runtime.text_to_text.rules import Rules
from optc.runtime.text_to_text.writer import Read, Writer, Written
from optc.system.closing import Closing

if TYPE_CHECKING:
    import tokenizers

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GeneratedText:
    """A text that a model wrote; ``str`` gives it.

    Attributes:
        text: Without special tokens.
        tokens: All of them, without the decoder's start and without the end.
        ended: Whether the model or its structure ended it; else it was cut off at ``max_tokens``.
    """

    text: str
    tokens: tuple[int, ...]
    ended: bool

    def __str__(self) -> str:
        """The text."""
        return self.text


class TextToTextGenerator(Closing):
    """A model that turns texts into texts: it translates, sums up, answers.

        with optc.load_text_to_text("artifacts/t5-small-text2text-fp32") as generator:
            print(generator.generate(["translate English to German: Good morning."])[0].text)

    Calls of several threads run side by side, and in the same steps where the decoder has steps.
    Each token is the likeliest one, unless beams or a structure are asked for.

    Attributes:
        info: The engines' names, backend and target, and why others were not taken.
        conventions: Of the model's tokens.
    """

    def __init__(
        self,
        encoder: TensorsExecutable,
        writer: Writer,
        conventions: TextConventions,
        tokenizer: tokenizers.Tokenizer,
        info: Mapping[str, Any],
    ) -> None:
        self._engines: tuple[TensorsExecutable, Writer] | None = (encoder, writer)
        self._tokenizer = tokenizer
        self.conventions = conventions
        self.info = info

    def generate(
        self, texts: str | Sequence[str], **wanted: Unpack[TextToTextOptions]
    ) -> list[GeneratedText]:
        """The texts that the model writes, in the order of those given.

        Args:
            texts: To read; one may stand alone.
            **wanted: Fields of `TextToTextParams` that differ from its defaults.

        Raises:
            RequestError: A text is none or too long, a value of ``wanted`` is not usable, or the
                engine is closed.
        """
        how = TextToTextParams(**wanted)
        given = [texts] if isinstance(texts, str) else list(texts)
        rules, rows = self._rules(how), self._encoded(given, how)
        _, writer = self._running()
        said = writer.write(rows, self._read, rules, how)
        return [self._generated(one, rules) for one in said]

    def likeliest(
        self, text: str, written: GeneratedText, **wanted: Unpack[TextToTextOptions]
    ) -> list[int]:
        """The token that the engine would write at each place of a text, and behind it, given the
        tokens before; as `generate` otherwise."""
        how = TextToTextParams(**wanted)
        (source,) = self._encoded([text], how)
        _, writer = self._running()
        return writer.likeliest(source, written.tokens, self._read, self._rules(how))

    def close(self) -> None:
        """Free the engines."""
        for engine in self._engines or ():
            engine.close()
        self._engines = None

    def _running(self) -> tuple[TensorsExecutable, Writer]:
        if self._engines is None:
            raise RequestError("the engine is closed", hint="load the artifact again")
        return self._engines

    def _read(self, sources: Sequence[Sequence[int]]) -> Read:
        """Keys and values of texts, and their mask, which decoders of whole batches need."""
        inputs = self._padded(sources)
        return {**self._running()[0].run(inputs), "attention_mask": inputs["attention_mask"]}

    def _rules(self, how: TextToTextParams) -> Rules:
        known = self.conventions
        start, first = known.prompt(how.target_language)
        most = min(how.max_tokens or known.most_tokens, known.positions)
        if how.max_tokens is not None and how.max_tokens > most:
            raise RequestError(
                f"the model writes {most} tokens of a text at most, not {how.max_tokens}",
                where="max_tokens",
            )
        return Rules(known, start, first, most)

    def _encoded(self, texts: Sequence[str], how: TextToTextParams) -> list[list[int]]:
        """Tokens of each text, special ones too."""
        if not all(isinstance(one, str) for one in texts):
            raise RequestError("texts are no list of texts", where="texts")
        rows = [list(one.ids) for one in self._tokenizer.encode_batch(checked_texts(texts))]
        if how.source_language is not None:
            rows = [self._in_language(one, how.source_language) for one in rows]
        most = self.conventions.source
        for index, row in enumerate(rows):
            if len(row) > most and not how.truncate:
                raise RequestError(
                    f"it has {len(row)} tokens, and the model reads {most}",
                    where=f"text {index}",
                    hint="divide it, or truncate=True cuts it off",
                )
            if not row:
                raise RequestError("it has no tokens", where=f"text {index}")
        return [self._cut(row) for row in rows]

    def _cut(self, row: list[int]) -> list[int]:
        """At most as many tokens as are read; what ends the text stays at its end."""
        most = self.conventions.source
        if len(row) <= most:
            return row
        ends = 0
        special = {*self.conventions.ends, *self.conventions.languages.values()}
        while ends < len(row) and row[-1 - ends] in special:
            ends += 1
        ends = min(ends, most)
        return [*row[: most - ends], *row[len(row) - ends :]]

    def _in_language(self, row: list[int], code: str) -> list[int]:
        """The tokens with another language than the one that the tokenizer names."""
        token = self.conventions.language(code, "source_language")
        languages = set(self.conventions.languages.values())
        return [token if one in languages else one for one in row]

    def _padded(self, rows: Sequence[Sequence[int]]) -> dict[str, Int64]:
        """Ids and mask i64[texts, tokens]; what stands in the padding counts for nothing."""
        width = max(map(len, rows))
        ids = np.full((len(rows), width), rows[0][-1], np.int64)
        mask = np.zeros((len(rows), width), np.int64)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
            mask[place, : len(row)] = 1
        return {"input_ids": ids, "attention_mask": mask}

    def _generated(self, written: Written, rules: Rules) -> GeneratedText:
        tokens = written.tokens
        said = tokens[:-1] if rules.ended(tokens) else tokens
        text = str(self._tokenizer.decode(list(said), skip_special_tokens=True)).strip()
        return GeneratedText(text, tuple(said), written.ended)

    def __repr__(self) -> str:
        """The engine's name."""
        return f"<optc.TextToTextGenerator {self.info.get('name', '')}>"
