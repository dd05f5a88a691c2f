"""`Terms`: how a request is served. The adapter apart, nothing of it changes a token."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real

from optc.errors import RequestError
from optc.runtime.requests.checks import encodes, shown

#: Most characters of a salt, of which the prefix cache keeps one for each tenant.
MAX_SALT = 1024
#: A hundred years.
_LONGEST_S = 100 * 366 * 86400


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Terms of one request, checked when they are built.

    Attributes:
        salt: Requests of different salts share no cached prefixes.
        priority: Higher goes first (`optc.runtime.scheduling.policy`).
        adapter: Name of a loaded LoRA adapter; None is the model itself.
        deadline_s: Seconds after its submission when it ends at the latest; None is never.

    Raises:
        RequestError: The salt or the adapter's name is no text, the salt is too long, the priority
            no integer, or the deadline not above 0 or of more than a hundred years.
    """

    salt: str = ""
    priority: int = 0
    adapter: str | None = None
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        self._check_salt()
        if isinstance(self.priority, bool) or not isinstance(self.priority, Integral):
            raise RequestError(
                f"a priority of {shown(self.priority)} is not allowed",
                where="priority",
                hint="an integer; higher goes first",
            )
        if self.adapter is not None and not isinstance(self.adapter, str):
            raise RequestError(
                f"an adapter named {shown(self.adapter)} is not allowed",
                where="adapter",
                hint="a text; None is the model itself",
            )
        seconds = self.deadline_s
        if seconds is not None and not (isinstance(seconds, Real) and 0 < seconds <= _LONGEST_S):
            raise RequestError(
                f"a deadline of {shown(seconds)} seconds is not allowed",
                where="deadline_s",
                hint=f"a number above 0 and up to {_LONGEST_S}; None is no deadline",
            )

    def _check_salt(self) -> None:
        salt: object = self.salt
        if isinstance(salt, str) and len(salt) <= MAX_SALT and encodes(salt):
            return
        raise RequestError(
            f"a salt of {shown(salt)} is not allowed",
            where="salt",
            hint=f"a text of at most {MAX_SALT} characters",
        )
