"""The bodies of ``/tokenize`` and ``/detokenize``, as vLLM has them."""

from __future__ import annotations

from optc.serve.bodies.base import Body, Json, Tokens
from optc.serve.bodies.chat import Message, Tool


class TokenizeBody(Body):
    """A text, or a conversation as the chat template renders it."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tools: list[Tool] | None = None
    chat_template_kwargs: Json | None = None


class DetokenizeBody(Body):
    """Tokens whose text is wanted."""

    model: str | None = None
    tokens: Tokens
