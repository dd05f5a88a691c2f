"""Whole answers, for clients and for lines of batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optc.runtime.handle import Handle
from optc.serve.answering.chat import ChatWriter
from optc.serve.answering.completion import CompletionWriter
from optc.serve.answering.streams import cancel_all, check_output
from optc.serve.answering.tokens import TokensWriter
from optc.serve.answering.usage import usage_of
from optc.serve.answering.writer import Writer, whole_choices
from optc.serve.asking.asked import Asked, Asker
from optc.serve.asking.chat import ask_chat
from optc.serve.asking.completion import ask_completion
from optc.serve.asking.tokens import ask_tokens
from optc.serve.models import ModelTable
from optc.serve.settings import Limits


@dataclass(frozen=True)
class Form:
    """The reader of requests and the writer of answers of one route.

    Attributes:
        ask: Reads a body.
        writer: Writes the choices.
    """

    ask: Callable[[dict[str, Any], ModelTable, Asker, Limits], Asked]
    writer: Callable[[Asked], Writer]


COMPLETION = Form(ask_completion, CompletionWriter)
CHAT = Form(ask_chat, ChatWriter)
TOKENS = Form(ask_tokens, TokensWriter)


async def whole_answer(
    asked: Asked, handles: Sequence[Handle], writer: Writer, facts: dict[str, Any]
) -> dict[str, Any]:
    """The answer of requests, once they have ended.

    Args:
        asked: What was asked for.
        handles: Its requests, which are cancelled if nobody waits any more.
        writer: Writes their choices.
        facts: Where the log finds how many tokens there were.

    Raises:
        APIError, OptcError: One failed.
    """
    try:
        outputs = [check_output(await handle) for handle in handles]
    finally:
        cancel_all(handles)
    facts["completion_tokens"] = sum(output.output_tokens for output in outputs)
    return writer.envelope.whole(whole_choices(writer, outputs), usage_of(asked, outputs))
