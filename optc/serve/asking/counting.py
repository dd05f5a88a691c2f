"""`count_chat`: how many tokens a conversation has for a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optc.runtime.openai.fields import take_variables
from optc.serve.asking.messages import for_template
from optc.serve.asking.tools import check_tools, take_allowed, told_in_text
from optc.serve.models import ModelTable, check_model


def count_chat(chat: Mapping[str, Any], models: ModelTable) -> int:
    """Tokens of the prompt of a chat, its tools included.

    Args:
        chat: The body of ``/v1/chat/completions``, or the part of it that a prompt is made of.
        models: Of the server.

    Raises:
        APIError: There is no such model, or it holds no conversations.
        InputError: The chat template refuses the conversation.
    """
    tokenizer = check_model(models.find(chat.get("model")))
    given = for_template(chat["messages"], tokenizer.chat_template)
    fields = dict(chat)
    check_tools(fields.get("tools") or ())
    take_allowed(fields)
    variables = take_variables(fields)
    if chat.get("tool_choice") == "none":
        variables.pop("tools", None)
    told, _ = told_in_text(given, variables, tokenizer)
    return len(tokenizer.encode_chat(told, **variables))
