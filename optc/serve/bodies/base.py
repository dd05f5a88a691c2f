"""Fields that all bodies have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

#: JSON of any kind, which the runtime checks: schemas, arguments of tools.
Json = dict[str, Any]
#: Token ids.
Tokens = list[int]


class Body(BaseModel):
    """A JSON object. Fields beyond the known ones are kept: clients send many, and they are named
    once in the log."""

    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())


class StreamOptions(Body):
    """Chunks of a stream besides those of its text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class StructuredOutputs(Body):
    """vLLM's form of structured output; one of these."""

    json_: str | Json | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class ResponseFormat(Body):
    """OpenAI's form of structured output."""

    type: str
    json_schema: Json | None = None


class SamplingBody(Body):
    """Fields that say how a text is continued, of completions and of chat completions."""

    model: str | None = None
    max_tokens: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stop_token_ids: Tokens | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    deadline_s: float | None = None
    return_token_ids: bool | None = None
    prompt_logprobs: int | None = None
    user: str | None = None
