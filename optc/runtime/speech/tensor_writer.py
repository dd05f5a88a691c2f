"""Writes transcripts by a decoder that is an engine of named tensors: one batch after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from optc.errors import RequestError
from optc.runtime.encoded.request import Encoded
from optc.runtime.encoded.tensor_decoder import TensorDecoder
from optc.runtime.speech.rules import SpeechRules, forbid, log_softmax
from optc.runtime.speech.write import Transcription

Float32 = npt.NDArray[np.float32]


class TensorWriter:
    """Transcripts that are submitted together begin together.

    Attributes:
        decoder: Runs them.
    """

    def __init__(self, decoder: TensorDecoder) -> None:
        self.decoder = decoder

    def session(self) -> TensorWrites:
        """For one caller."""
        return TensorWrites(self.decoder)

    def likeliest(self, encoded: Encoded, rules: SpeechRules, tokens: Sequence[int]) -> list[int]:
        """See `optc.runtime.speech.write.Writer`."""
        reading = _Reading(encoded, tokens, rules.prompt - 1)
        session = self.decoder.session()
        session.submit([reading])
        session.wait()
        found = []
        for place, row in enumerate(reading.logits, rules.prompt):
            forbid(row, rules.after(tokens[:place]))
            found.append(int(row.argmax()))
        return found

    def close(self) -> None:
        """Free the engine."""
        self.decoder.close()


class TensorWrites:
    """Transcripts of one caller. Those with times have shorter prompts, and run apart: tokens of a
    batch are as many for each."""

    def __init__(self, decoder: TensorDecoder) -> None:
        self._apart = {timestamps: decoder.session() for timestamps in (False, True)}
        self._open = dict.fromkeys(self._apart, 0)

    def submit(self, some: Iterable[Transcription]) -> None:
        """See `optc.runtime.speech.write.Session`."""
        begun = list(some)
        if named := next((one.how.of_steps for one in begun if one.how.of_steps), ()):
            raise RequestError(
                "this decoder writes whole batches, token after token",
                where=named[0],
                hint="one that runs in steps does more: compile without --backend",
            )
        for one in begun:
            self._apart[one.how.timestamps].submit([_Taking(one)])
            self._open[one.how.timestamps] += 1

    def wait(self) -> Transcription:
        """See `optc.runtime.speech.write.Session`."""
        timestamps = next(kind for kind, count in self._open.items() if count)
        ended: _Taking = self._apart[timestamps].wait()
        self._open[timestamps] -= 1
        return ended.given

    def close(self) -> None:
        """Nothing runs but while somebody waits."""


class _Taking:
    """A transcript that takes logits (`optc.runtime.encoded.request.Decoding`)."""

    def __init__(self, given: Transcription) -> None:
        self.given, self.encoded, self.heard = given, given.encoded, 0
        first = [given.how.known.start]
        self.prompt: Sequence[int] = first if given.asks_language else given.prompt
        self._begun = False
        self._sum = 0.0
        self._draws = np.random.default_rng(given.seed)
        self._temperature = given.how.params(1, given.seed).temperature

    def take(self, logits: Float32) -> Sequence[int]:
        """The tokens to go on with."""
        given, known = self.given, self.given.how.known
        if not self._begun:
            self._begun = True
            if known.no_speech is not None:
                given.no_speech = float(np.exp(log_softmax(logits[0])[known.no_speech]))
            if given.asks_language:
                tokens = np.array(list(known.languages.values()))
                given.language = int(tokens[logits[0][tokens].argmax()])
                return given.prompt[1:]
        return self._write(logits[-1])

    def _write(self, logits: Float32) -> Sequence[int]:
        given = self.given
        chances = log_softmax(logits)
        forbid(logits, given.rules.after([*given.prompt, *given.tokens]))
        token = self._chosen(logits)
        self._sum += float(chances[token])
        given.logprob = self._sum / (len(given.tokens) + 1)
        if token == given.how.known.end:
            return ()
        given.tokens.append(token)
        return () if len(given.tokens) >= given.room else (token,)

    def _chosen(self, logits: Float32) -> int:
        if not self._temperature:
            return int(logits.argmax())
        sums = np.exp(log_softmax(logits / self._temperature)).cumsum()
        return int(np.searchsorted(sums, self._draws.random() * sums[-1], side="right"))


class _Reading:
    """Tokens that are read at once, for the logits behind each (`Decoding`).

    Attributes:
        logits: f32[n, V] behind the tokens from ``heard`` on, once the request has run.
    """

    def __init__(self, encoded: Encoded, prompt: Sequence[int], heard: int) -> None:
        self.encoded, self.prompt, self.heard = encoded, prompt, heard
        self.logits: Float32 = np.zeros((0, 0), np.float32)

    def take(self, logits: Float32) -> Sequence[int]:
        """Nothing follows."""
        self.logits = logits
        return ()
