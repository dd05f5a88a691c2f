"""`Controller`, who decides how many tokens to draft, and the one that always says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

#: Grades of drafts that are known by their place only: the binary digits of how many are before.
PLACES = tuple(place.bit_length() for place in range(64))


class Draftable(NamedTuple):
    """A request that may be given drafts.

    Attributes:
        id: Its id.
        room: Most tokens that it may still get.
        catch_up: Rows that a draft model must compute for it before its first draft is there.
        grades: How sure the source is of each draft that could be made, if those before it hold:
            acceptance is learned for each grade apart. No more drafts are to be had than grades.
    """

    id: int
    room: int
    catch_up: int = 1
    grades: Sequence[int] = PLACES


class StepTimes(NamedTuple):
    """The outcome of one step of decodes and drafts.

    Attributes:
        sequences: B.
        rows: T: B and the drafts of all sources.
        seconds: Of the whole step, the making of drafts included.
        drafting_s: Of these, in which this source made its drafts.
        drafted: How many of this source's drafts were in the step.
        accepted: How many of them were accepted.
        mixed: The step computed parts of prompts as well; its ``rows`` and ``seconds`` then say
            nothing of drafts.
    """

    sequences: int
    rows: int
    seconds: float
    drafting_s: float = 0.0
    drafted: int = 0
    accepted: int = 0
    mixed: bool = False


class Controller(Protocol):
    """Chooses how many tokens a source drafts, and learns from what came of it."""

    def ready(self) -> bool:
        """True if the next step may have drafts: asked first, once a step; costs next to nothing
        where it may not."""
        ...

    def counts(self, requests: Sequence[Draftable], sequences: int) -> list[int]:
        """Drafts for each of the requests, which may be none, in a step of ``sequences``
        sequences."""
        ...

    def learn(self, request_id: int, drafted: int, accepted: int) -> None:
        """Take note of a verification of ``drafted`` drafts in a row, at least one."""
        ...

    def observe(self, step: StepTimes) -> None:
        """Take note of a step."""
        ...

    def forget(self, request_id: int) -> None:
        """Drop what is known of a request that ended."""
        ...


@dataclass(frozen=True)
class Fixed:
    """Always the same number of drafts, paying or not."""

    drafts: int

    def ready(self) -> bool:
        """Always."""
        return True

    def counts(self, requests: Sequence[Draftable], sequences: int) -> list[int]:
        """The number it was made with."""
        return [self.drafts] * len(requests)

    def learn(self, request_id: int, drafted: int, accepted: int) -> None:
        """Nothing is learned."""

    def observe(self, step: StepTimes) -> None:
        """Nothing is learned."""

    def forget(self, request_id: int) -> None:
        """Nothing is known."""
