"""`GenerationRequest`: what a caller asks for, from a submission to the engine's thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral, Real
from typing import Any

from optc.errors import RequestError
from optc.runtime.checks import encodes, shown
from optc.runtime.params import SamplingParams
from optc.runtime.requests.prompts import Prompt

#: Most characters of a salt, of which the prefix cache keeps one for each tenant.
MAX_SALT = 1024
#: A hundred years.
_LONGEST_S = 100 * 366 * 86400


@dataclass(frozen=True)
class GenerationRequest:
    """One request. How it is served is checked when it is built; prompt and params are checked when
    it is submitted, since they depend on the engine.

    Attributes:
        prompt: Text, token ids or a conversation (`optc.Chat`).
        params: How to continue.
        salt: A tenant's name: requests of different salts share no cached prefixes, so that
            latencies tell nothing about the prompts of others.
        priority: Higher goes first, and later ones make room for it; who waits gains on
            newcomers, so that nobody starves (`optc.runtime.scheduling.policy` states the bound).
        adapter: Name of a loaded LoRA adapter; None is the model itself.
        deadline_s: Seconds from its submission when it ends at the latest, with what it has and
            the finish reason ``deadline``; seen between steps. None is no deadline.
        parse_special: Take texts of control tokens (``<|end_of_text|>``) in the prompt for these
            tokens; only for prompts that no user wrote. Without it they are text.
        whole_text: Of a conversation, all that the model writes is text, what it thinks and the
            marks around it too. Without it that is apart, as ``reasoning``.
        scored_from: With ``params.prompt_logprobs``, the first token of the prompt that is scored;
            a prefix before it may come from the cache.

    Raises:
        RequestError: The salt or the adapter's name is no text, the salt is too long, the priority
            no integer, the deadline not above 0 or of more than a hundred years, or scored_from
            no index.
    """

    prompt: Prompt
    params: SamplingParams = field(default_factory=SamplingParams)
    _: KW_ONLY
    salt: str = ""
    priority: int = 0
    adapter: str | None = None
    deadline_s: float | None = None
    parse_special: bool = False
    whole_text: bool = False
    scored_from: int = 0

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
        first: object = self.scored_from
        if isinstance(first, bool) or not isinstance(first, Integral) or int(first) < 0:
            raise RequestError(
                f"a prompt scored from {shown(first)} on is not allowed",
                where="scored_from",
                hint="the index of a token, at least 0",
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


def as_request(
    prompt: Prompt | GenerationRequest, params: SamplingParams | None, terms: Mapping[str, Any]
) -> GenerationRequest:
    """The request of a call that may give it whole.

    Raises:
        RequestError: As of `GenerationRequest`.
        TypeError: It is given whole, and something beside it; or there is no such field.
    """
    if isinstance(prompt, GenerationRequest):
        if params is not None or terms:
            raise TypeError("a GenerationRequest holds its params and terms: give it alone")
        return prompt
    return GenerationRequest(prompt, SamplingParams() if params is None else params, **terms)
