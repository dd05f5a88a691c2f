"""Windows of a long sound, one after the other: spans by the times in a transcript, and where the
next window begins (Radford et al., 2022, arXiv:2212.04356, section 3.8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A piece of a transcript.

    Attributes:
        start, end: Seconds from the beginning of the sound.
        tokens: Times among them.
    """

    start: float
    end: float
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """A window in a sound.

    Attributes:
        start: Its first frame.
        frames: How many of its frames are sound.
        frame_seconds: From frame to frame.
        precision: Seconds between two times.
        first_time: Token of 0 seconds.
    """

    start: int
    frames: int
    frame_seconds: float
    precision: float
    first_time: int

    def spans(self, tokens: Sequence[int]) -> tuple[list[Span], int]:
        """The spans of a transcript, and the frames to the next window.

        Two times side by side end a span and begin the next one. What stands behind the last such
        pair was cut off by the window's end, and is heard again in the next window, unless the
        transcript ends with a single time: nothing is said behind it. Without a pair all is one
        span.
        """
        timed = [token >= self.first_time for token in tokens]
        pairs = [i for i in range(1, len(tokens)) if timed[i - 1] and timed[i]]
        whole = timed[-2:] == [False, True]
        if not pairs:
            return [self._single(tokens, timed)], self.frames
        ends = [*pairs, len(tokens)] if whole else pairs
        starts = [0, *ends[:-1]]
        found = [self._span(tokens[a:b]) for a, b in zip(starts, ends, strict=True)]
        if whole:
            return found, self.frames
        heard = round(self._steps(tokens[ends[-1] - 1]) * self.precision / self.frame_seconds)
        return found, min(heard, self.frames) or self.frames

    def _span(self, tokens: Sequence[int]) -> Span:
        first, last = (self._steps(token) * self.precision for token in (tokens[0], tokens[-1]))
        return Span(self._seconds + first, self._seconds + last, tuple(tokens))

    def _single(self, tokens: Sequence[int], timed: Sequence[bool]) -> Span:
        times = [token for token, one in zip(tokens, timed, strict=True) if one]
        last = self.frames * self.frame_seconds
        if times and times[-1] != self.first_time:
            last = self._steps(times[-1]) * self.precision
        return Span(self._seconds, self._seconds + last, tuple(tokens))

    def _steps(self, token: int) -> int:
        return max(0, token - self.first_time)

    @property
    def _seconds(self) -> float:
        return self.start * self.frame_seconds
