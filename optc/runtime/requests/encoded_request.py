"""`EncodedRequest`: one to a decoder that attends to an encoder."""

from __future__ import annotations

from dataclasses import dataclass

from optc.runtime.executable.encoder_states import EncoderStates
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.requests.ruled import TokenRules


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
