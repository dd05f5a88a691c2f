"""The body of ``/inference/v1/generate``, as vLLM has it: tokens in, tokens out."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from optc.serve.bodies.base import Body, SamplingBody, StreamOptions


class TokenSampling(SamplingBody):
    """The parameters of the continuation."""

    logprobs: int | None = None


class GenerateBody(Body):
    """Tokens to continue."""

    model: str | None = None
    token_ids: Annotated[list[int], Field(min_length=1)]
    sampling_params: TokenSampling | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    deadline_s: float | None = None
