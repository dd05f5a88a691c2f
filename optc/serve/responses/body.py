"""The body of ``/v1/responses``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from optc.serve.bodies.base import Body, Json


class ContentPart(Body):
    """A part of a content: what a user or the assistant says."""

    type: str
    text: str | None = None


class Item(Body):
    """A message, a call, its result, or a thought."""

    type: str | None = None
    role: str | None = None
    content: str | list[ContentPart] | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[ContentPart] | None = None
    summary: list[ContentPart] | None = None


class FunctionTool(Body):
    """A function that may be called."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: Json | None = None
    strict: bool | None = None


class NamedChoice(Body):
    """The function that is to be called, or some that may be."""

    type: str
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[NamedChoice] | None = None


class TextFormat(Body):
    """The form that the text must have."""

    type: str
    name: str | None = None
    schema_: Json | None = Field(None, alias="schema")
    strict: bool | None = None


class TextOptions(Body):
    """About the text."""

    format: TextFormat | None = None
    verbosity: str | None = None


class ReasoningOptions(Body):
    """About thoughts."""

    effort: str | None = None
    summary: str | None = None


class ResponseBody(Body):
    """A conversation to go on with."""

    model: str | None = None
    input: str | Annotated[list[Item], Field(min_length=1)]
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    stream: bool | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    include: list[str] | None = None
    truncation: str | None = None
    background: bool | None = None
    user: str | None = None
