"""`EncodedRequest`: one to a decoder that attends to an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from optc.runtime.executable.encoder_states import EncoderStates
from optc.runtime.requests.generation_request import GenerationRequest


class Ruled(NamedTuple):
    """The rules for the next token.

    Attributes:
        only: The one that must follow; None is any.
        never: Those that must not.
    """

    only: int | None = None
    never: Sequence[int] = ()


class TokenRules(Protocol):
    """Rules of the tokens that may follow others, such as a model's own settings state them."""

    def after(self, tokens: Sequence[int]) -> Ruled:
        """The tokens that may follow the prompt and the output so far."""
        ...


@dataclass(frozen=True, kw_only=True)
class EncodedRequest(GenerationRequest):
    """A request with states of an encoder. Its salt must be theirs, so that requests with other
    states share no cached prefixes.

    Attributes:
        states: What it attends to.
        rules: Of its tokens, beside its parameters; None is none.
    """

    states: EncoderStates
    rules: TokenRules | None = None
