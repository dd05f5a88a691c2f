"""`Wanted`: how speech is to be written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from optc.errors import RequestError
from optc.runtime.audio.conventions import TRANSCRIBE
from optc.runtime.params import SamplingParams


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Settings for writing down speech.

    Attributes:
        language: Its code, such as ``en``; None finds it out where the model knows several.
        task: ``transcribe``, or ``translate`` into English where the model can.
        timestamps: Give times of segments. Sounds longer than the model's window always get them.
        temperature: 0 takes the likeliest token each time.
        seed: Of draws at a temperature.
        no_speech_threshold: A window is silent where the model says so with more than this
            probability, and its transcript is unlikely; None hears out all.
        logprob_threshold: Mean logarithm of probabilities below which a transcript is unlikely.
        batch_size: Windows that run together.
        beam_width: Beam search with so many beams, by transformers' rules, of which the best
            transcript of each window is given; None writes one token after the other.
        length_penalty: Of a beam search: transcripts of n tokens are ranked by log-probability
            / n ** this.
        regex, grammar, choice: What the text is, as of `optc.SamplingParams`, and a space may come
            before a text of ``regex`` and ``choice``, as models begin with one; one of them, of a
            sound without times, and no beams.
    """

    language: str | None = None
    task: str = TRANSCRIBE
    timestamps: bool = False
    temperature: float = 0.0
    seed: int = 0
    no_speech_threshold: float | None = 0.6
    logprob_threshold: float = -1.0
    batch_size: int = 4
    beam_width: int | None = None
    length_penalty: float = 1.0
    regex: str | None = None
    grammar: str | None = None
    choice: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 10:
            raise RequestError(
                f"the temperature is {self.temperature}", where="temperature", hint="0 to 10"
            )
        if self.batch_size < 1:
            raise RequestError(
                f"{self.batch_size} windows at once", where="batch_size", hint="at least 1"
            )
        self.params(1, 0)  # it says what is not usable
        if self.timestamps:
            self.check_no_structure("times are no part of a structure's text")

    @property
    def structure(self) -> str | None:
        """The name of the structure that the text has."""
        return next((name for name in _STRUCTURES if getattr(self, name) is not None), None)

    @property
    def of_steps(self) -> list[str]:
        """Names of settings that only a decoder of steps has."""
        beams = [] if self.beam_width is None else ["beam_width"]
        return beams + ([] if self.structure is None else [self.structure])

    def check_no_structure(self, why: str) -> None:
        """Check that the text may be any.

        Raises:
            RequestError: It has a structure; ``why`` says what is against it.
        """
        if self.structure is not None:
            raise RequestError(
                f"{why}, and a sound longer than the model's window needs times",
                where=self.structure,
                hint="give pieces of at most one window, without timestamps",
            )

    def params(self, room: int, seed: int) -> SamplingParams:
        """Parameters of a transcript of at most ``room`` tokens, drawn with ``seed``.

        Raises:
            RequestError: A value is not usable, or two do not go together.
        """
        beams = self.beam_width is not None
        return SamplingParams(
            max_tokens=room,
            temperature=self.temperature,
            seed=None if beams else seed,
            logprobs=None if beams or self.no_speech_threshold is None else 0,
            beam_width=self.beam_width,
            length_penalty=self.length_penalty,
            regex=None if self.regex is None else f" ?(?:{self.regex})",
            grammar=self.grammar,
            choice=None if self.choice is None else _spaced(self.choice),
        )


def _spaced(choice: Sequence[str]) -> Sequence[str]:
    """The texts, and each with a space before it; what is no list of texts stays."""
    if isinstance(choice, str) or not all(isinstance(one, str) for one in choice):
        return choice
    return list(dict.fromkeys(way for one in choice for way in (one, f" {one.lstrip(' ')}")))


_STRUCTURES = ("regex", "grammar", "choice")


class WantedChanges(TypedDict, total=False):
    """Fields of `Wanted`."""

    language: str | None
    task: str
    timestamps: bool
    temperature: float
    seed: int
    no_speech_threshold: float | None
    logprob_threshold: float
    batch_size: int
    beam_width: int | None
    length_penalty: float
    regex: str | None
    grammar: str | None
    choice: Sequence[str] | None
