"""Writers of texts: the contract, and the loop over engines of named tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from optc.errors import RequestError
from optc.runtime.encoded.batch import DecoderBatch
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.text_to_text.params import TextToTextParams
from optc.runtime.text_to_text.rules import Rules
from optc.runtime.text_to_text.write import write

#: Keys and values of texts that were read together, by name, and their mask.
Read = Mapping[str, Any]
#: Reads texts, each a list of tokens.
Reads = Callable[[Sequence[Sequence[int]]], Read]


class Written(NamedTuple):
    """A text: its tokens, with an end token if it has one, and whether it was not cut off."""

    tokens: list[int]
    ended: bool


class Writer(Protocol):
    """A decoder that writes texts."""

    def write(
        self, sources: Sequence[Sequence[int]], read: Reads, rules: Rules, how: TextToTextParams
    ) -> list[Written]:
        """The text for each source.

        Raises:
            RequestError: It does not write so.
        """
        ...

    def likeliest(
        self, source: Sequence[int], tokens: Sequence[int], read: Reads, rules: Rules
    ) -> list[int]:
        """The token that it would write at each place of a text, and behind it, given the tokens
        before."""
        ...

    def close(self) -> None:
        """Free the engine."""
        ...


class TensorWriter:
    """Writes batches of texts that begin together, each token the likeliest one.

    Args:
        decoder: As `optc.importer.tensors.encoder_decoder.ImportedEncoderDecoder.decoder`.
    """

    def __init__(self, decoder: TensorsExecutable) -> None:
        self._decoder = decoder

    def write(
        self, sources: Sequence[Sequence[int]], read: Reads, rules: Rules, how: TextToTextParams
    ) -> list[Written]:
        """See `Writer`. Texts of about one length run together, so that little is padded."""
        if named := how.of_steps:
            raise RequestError(
                "this decoder writes whole batches, each token the likeliest one",
                where=named[0],
                hint="one that runs in steps does more: compile with a recipe that has the key"
                " decoder, such as text2text-fp32, without --backend",
            )
        found: dict[int, list[int]] = {}
        for some in by_length(sources, how.batch_size):
            said = write(self._decoder.run, read([sources[index] for index in some]), rules)
            found.update(zip(some, said, strict=True))
        return [Written(found[at], rules.ended(found[at])) for at in range(len(sources))]

    def likeliest(
        self, source: Sequence[int], tokens: Sequence[int], read: Reads, rules: Rules
    ) -> list[int]:
        """See `Writer`."""
        batch = DecoderBatch(self._decoder.run, read([source]))
        logits = batch.step(np.array([[rules.start, *tokens]], np.int64))[0]
        return [rules.next_token(row, tokens[:at]) for at, row in enumerate(logits)]

    def close(self) -> None:
        """Free the engine."""
        self._decoder.close()


def by_length(rows: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Numbers of rows, ``count`` together, the shortest first."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    return [order[start : start + count] for start in range(0, len(order), count)]
