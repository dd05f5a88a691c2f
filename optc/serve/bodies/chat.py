"""The body of ``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from optc.serve.bodies.base import Body, Json, SamplingBody


class Part(Body):
    """A part of a content."""

    type: str
    text: str | None = None


class CalledFunction(Body):
    """The function that a message calls: arguments are JSON text, as OpenAI has them, or JSON."""

    name: str
    arguments: str | Json | None = None


class Call(Body):
    """One call of a message."""

    id: str | None = None
    type: str | None = None
    function: CalledFunction


class Message(Body):
    """A message of a conversation."""

    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class Function(Body):
    """A function that may be called."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: Json | None = None
    strict: bool | None = None


class Tool(Body):
    """A tool: a function, as all are."""

    type: Literal["function"]
    function: Function


class NamedFunction(Body):
    """The function that is to be called."""

    name: str


class NamedTool(Body):
    """The tool that is to be called."""

    type: Literal["function"] = "function"
    function: NamedFunction


class AllowedTools(Body):
    """Tools that may be called, or of which one must be."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Field(min_length=1)]


class AllowedChoice(Body):
    """Some of the tools, in the newer form of OpenAI."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def _kind(choice: object) -> str:
    """The kind of a choice; that of a named tool may be left out."""
    allows = isinstance(choice, Mapping) and choice.get("type") == "allowed_tools"
    return "allowed_tools" if allows else "function"


Choice = Annotated[
    Annotated[NamedTool, Tag("function")] | Annotated[AllowedChoice, Tag("allowed_tools")],
    Discriminator(_kind),
]


class ChatBody(SamplingBody):
    """A conversation to go on with."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | Choice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    include_reasoning: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    documents: list[Json] | None = None
    chat_template_kwargs: Json | None = None
