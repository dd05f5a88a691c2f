"""The transcript of a window of sound on its way, and who writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from optc.runtime.audio.conventions import Conventions
from optc.runtime.encoded.request import Encoded
from optc.runtime.params import SamplingParams
from optc.runtime.speech.rules import SpeechRules


@dataclass(frozen=True)
class Writing:
    """Settings for writing transcripts.

    Attributes:
        known: Conventions of the model.
        prompt: Gives the tokens before a transcript in a language, of which the first is the
            conventions' start; None is the only one.
        timestamps: With times.
        params: Parameters of a transcript of at most so many tokens, with a seed.
        of_steps: Names of settings that only a decoder of steps has.
        hears: The probability that nobody speaks is wanted.
    """

    known: Conventions
    prompt: Callable[[int | None], Sequence[int]]
    timestamps: bool
    params: Callable[[int, int], SamplingParams]
    of_steps: Sequence[str] = ()
    hears: bool = True


@dataclass(eq=False)
class Transcription:
    """The transcript of a window.

    Attributes:
        encoded: The window's states.
        how: As asked for.
        language: Its token; None is found out where the model knows several, and stays None where
            it knows one alone.
        seed: Of draws.
        tokens: Without the prompt and the end, times among them.
        no_speech: Probability that nobody speaks; 0 where the model does not say.
        logprob: Mean logarithm of the tokens' probabilities, the end's among them, of all that the
            model might say.
    """

    encoded: Encoded
    how: Writing
    language: int | None
    seed: int
    tokens: list[int] = field(default_factory=list)
    no_speech: float = 0.0
    logprob: float = 0.0

    @property
    def asks_language(self) -> bool:
        """The language has to be found out first."""
        return self.language is None and bool(self.how.known.languages)

    @property
    def prompt(self) -> list[int]:
        """The tokens before it, of a language that is known."""
        return list(self.how.prompt(self.language))

    @property
    def room(self) -> int:
        """The most tokens that it may have."""
        return self.how.known.most_tokens - len(self.prompt)

    @property
    def rules(self) -> SpeechRules:
        """Of its tokens."""
        return SpeechRules(self.how.known, len(self.prompt), self.how.timestamps)


class Session(Protocol):
    """Transcripts of one caller. They are written at the same time as those of others."""

    def submit(self, some: Iterable[Transcription]) -> None:
        """Begin with more of them.

        Raises:
            RequestError: The decoder does not write so.
        """
        ...

    def wait(self) -> Transcription:
        """The next one that is whole.

        Raises:
            RequestError: The engine is closed.
        """
        ...

    def close(self) -> None:
        """Write those no further that nobody waited for."""
        ...


class Writer(Protocol):
    """A decoder that writes transcripts; usable from several threads."""

    def session(self) -> Session:
        """For one caller."""
        ...

    def likeliest(self, encoded: Encoded, rules: SpeechRules, tokens: Sequence[int]) -> list[int]:
        """The likeliest token at each place behind the prompt of ``rules``, and behind ``tokens``,
        which begin with that prompt, given those before."""
        ...

    def close(self) -> None:
        """Free the engine."""
        ...
