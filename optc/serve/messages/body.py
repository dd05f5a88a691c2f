"""The bodies of ``/v1/messages`` and ``/v1/messages/count_tokens``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from optc.serve.bodies.base import Body, Json


class Block(Body):
    """A block of a content: text, a thought, the use of a tool, or its result."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Json | None = None
    tool_use_id: str | None = None
    content: str | list[dict[str, Any]] | None = None


class Message(Body):
    """A message of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class Tool(Body):
    """A tool that may be used."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    type: str | None = None
    description: str | None = None
    input_schema: Json | None = None


class ToolChoice(Body):
    """The choice of a tool."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body):
    """The wish for thoughts."""

    type: str
    budget_tokens: int | None = None


class CountBody(Body):
    """A conversation."""

    model: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)]
    system: str | list[Block] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None


class MessagesBody(CountBody):
    """A conversation to go on with."""

    max_tokens: int
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    metadata: Json | None = None
