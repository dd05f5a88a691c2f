"""Transcripts as users get them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Segment:
    """A piece of a transcript.

    Attributes:
        start, end: Seconds from the beginning of the sound.
        text: Without times.
    """

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Transcript:
    """The words of a sound; ``str`` gives the text.

    Attributes:
        text: All of it.
        language: Code of the language that was given or found; None where the model knows one.
        segments: Pieces with their times; empty where times were neither asked for nor needed.
        tokens: Of the text, times among them.
        seconds: Length of the sound.
    """

    text: str
    language: str | None
    segments: tuple[Segment, ...]
    tokens: tuple[int, ...]
    seconds: float

    def __str__(self) -> str:
        """The text."""
        return self.text
