"""Writes the transcript of a window of sound: what a decoder's logits lead to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.runtime.audio.conventions import Conventions
from optc.runtime.encoded.request import Encoded
from optc.runtime.speech.rules import forbid, log_softmax

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Writing:
    """Settings for writing transcripts.

    Attributes:
        prompt: Gives the tokens before a transcript in a language, of which the first is the
            conventions' start; None is the only one.
        timestamps: With times.
        temperature: 0 takes the likeliest token; above, tokens are drawn.
    """

    prompt: Callable[[int | None], Sequence[int]]
    timestamps: bool = False
    temperature: float = 0.0


class Transcription:
    """The transcript of a window on its way (`optc.runtime.encoded.request.Decoding`).

    Args:
        encoded: The window's states.
        conventions: Of the model.
        how: As asked for.
        language: Its token; None is found out where the model knows several.
        draws: For a temperature.

    Attributes:
        tokens: Without the prompt and the end, times among them.
        no_speech: Probability that nobody speaks; 0 where the model does not say.
        language: Its token; None where the model knows one alone.
    """

    def __init__(
        self,
        encoded: Encoded,
        conventions: Conventions,
        how: Writing,
        language: int | None,
        draws: np.random.Generator,
    ) -> None:
        self.encoded = encoded
        self.heard = 0
        self.tokens: list[int] = []
        self.language = language
        self.no_speech = 0.0
        self._known, self._how, self._draws = conventions, how, draws
        self._sum = 0.0
        unknown = language is None and bool(conventions.languages)
        self.prompt = [conventions.start] if unknown else list(how.prompt(language))
        self._begun = False

    @property
    def logprob(self) -> float:
        """Mean logarithm of the tokens' probabilities, the end's among them."""
        return self._sum / (len(self.tokens) + 1)

    def take(self, logits: Float32) -> Sequence[int]:
        """The tokens to go on with; see `Decoding`."""
        if not self._begun:
            self._begun = True
            self._hear(logits[0])
            if self.language is None and self._known.languages:
                self.language = self._likeliest_language(logits[0])
                return self._how.prompt(self.language)[1:]
        return self._write(logits[-1])

    def _hear(self, behind_start: Float32) -> None:
        """Note how likely nobody speaks."""
        if self._known.no_speech is not None:
            self.no_speech = float(np.exp(log_softmax(behind_start)[self._known.no_speech]))

    def _likeliest_language(self, behind_start: Float32) -> int:
        tokens = np.array(list(self._known.languages.values()))
        return int(tokens[behind_start[tokens].argmax()])

    def _write(self, logits: Float32) -> Sequence[int]:
        known = self._known
        forbid(logits, self.tokens, known, timestamps=self._how.timestamps)
        token, logprob = _chosen(logits, self._how.temperature, self._draws)
        self._sum += logprob
        if token == known.end:
            return ()
        self.tokens.append(token)
        room = known.most_tokens - len(self._how.prompt(self.language))
        return () if len(self.tokens) >= room else (token,)


class Reading:
    """Tokens that are read at once, for the logits behind each (`Decoding`).

    Attributes:
        logits: f32[n, V] behind the tokens from ``heard`` on; None before the request has run.
    """

    def __init__(self, encoded: Encoded, prompt: Sequence[int], heard: int) -> None:
        self.encoded, self.prompt, self.heard = encoded, prompt, heard
        self.logits: Float32 | None = None

    def take(self, logits: Float32) -> Sequence[int]:
        """Nothing follows."""
        self.logits = logits
        return ()


def _chosen(logits: Float32, temperature: float, draws: np.random.Generator) -> tuple[int, float]:
    """A token, and the logarithm of its probability."""
    chances = log_softmax(logits if not temperature else logits / temperature)
    if not temperature:
        token = int(logits.argmax())
    else:
        sums = np.exp(chances).cumsum()
        token = int(np.searchsorted(sums, draws.random() * sums[-1], side="right"))
    return token, float(chances[token])
