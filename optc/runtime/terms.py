"""`Terms`: how a request is served. The adapter apart, nothing of it changes a token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

from optc.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Terms of one request, checked when they are built.

    Attributes:
        salt: Requests of different salts share no cached prefixes.
        priority: Higher goes first (`optc.runtime.policy`).
        adapter: Name of a loaded LoRA adapter; None is the model itself.
        deadline_s: Seconds after its submission when it ends at the latest; None is never.

    Raises:
        RequestError: The salt is no text, the priority no integer, or the deadline not above 0.
    """

    salt: str = ""
    priority: int = 0
    adapter: str | None = None
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.salt, str):
            raise RequestError(
                f"a salt of {self.salt!r} is not allowed", where="salt", hint="a text"
            )
        if isinstance(self.priority, bool) or not isinstance(self.priority, Integral):
            raise RequestError(
                f"a priority of {self.priority!r} is not allowed",
                where="priority",
                hint="an integer; higher goes first",
            )
        seconds = self.deadline_s
        if seconds is not None and not (isinstance(seconds, Real) and 0 < seconds < math.inf):
            raise RequestError(
                f"a deadline of {seconds!r} seconds is not allowed",
                where="deadline_s",
                hint="a number above 0; None is no deadline",
            )
