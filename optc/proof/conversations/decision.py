"""`Decision`: a point of an answer at which the model acts, and what it may do there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: How an answer begins; whether a tool is called; which one; one value of a few; the end of a turn.
Kind = Literal["begin", "call", "tool", "value", "end"]


@dataclass(frozen=True)
class Option:
    """One thing that a model may do.

    Attributes:
        name: For readers.
        tokens: The next tokens that do it; none are all that no other option has.
    """

    name: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Decision:
    """A decision that a model makes by one token.

    Attributes:
        kind: What is decided.
        place: Which of the sequence's ids is the token.
        about: What it is about, such as ``get_weather.unit``; may be empty.
        options: At least two; none: each token of the vocabulary is one.
        taken: The option that the conversation takes; -1 without options.
    """

    kind: Kind
    place: int
    about: str
    options: tuple[Option, ...]
    taken: int
