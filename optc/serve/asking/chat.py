"""Requests of ``/v1/chat/completions``, as the engine takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from optc.runtime.openai.fields import take_logprobs, take_variables
from optc.runtime.openai.structures import has_structure
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.requests.prompts import Chat
from optc.serve.api_errors import APIError
from optc.serve.asking.asked import Asked, Asker
from optc.serve.asking.messages import for_template
from optc.serve.asking.read_body import validated
from optc.serve.asking.sampling import check_completions, fields_of, take_terms
from optc.serve.asking.tools import (
    grammar_of,
    reading_of,
    strict_grammar,
    take_choice,
    told_in_text,
)
from optc.serve.bodies.chat import ChatBody
from optc.serve.models import ModelTable, check_model
from optc.serve.settings import Limits


def ask_chat(body: dict[str, Any], models: ModelTable, asker: Asker, limits: Limits) -> Asked:
    """Read a body.

    Raises:
        APIError, OptcError: It is wrong, or asks for too much.
    """
    validated(ChatBody, body)
    model = models.find(body.get("model"))
    tokenizer = check_model(model)
    fields = fields_of(body)
    messages = for_template(fields.pop("messages", []), tokenizer.chat_template)
    if "echo" in fields:
        raise APIError(400, "echo is not supported in chats: leave it out", "echo")
    shows = bool(fields.pop("include_reasoning", True))
    variables = take_variables(fields)
    messages, told = told_in_text(messages, variables, tokenizer)
    reading = told or reading_of(tokenizer.chat_template, variables.get("tools") or ())
    if body.get("parallel_tool_calls") is False:
        reading = replace(reading, most_calls=1)
    reading, must_call = take_choice(fields, reading)
    more: dict[str, Any] = take_logprobs(fields, chat=True)
    if must_call:
        more["grammar"] = grammar_of(reading, tokenizer, messages, variables)
    elif reading.tools and not has_structure(fields):
        more["grammar"] = strict_grammar(reading, tokenizer, body["tools"])
    if reading.needs_special_tokens(tokenizer):
        fields.setdefault("skip_special_tokens", False)
    if "max_tokens" not in fields and "max_tokens" not in model.engine.defaults:
        fields["max_tokens"] = None  # as many as the context holds
    terms = take_terms(fields, body, model, asker, limits, **more)
    check_completions(1, terms.params.n, limits)
    request = GenerationRequest(Chat(messages, variables), terms.params, **terms.served)
    return Asked(
        model,
        (request,),
        terms.params.n,
        terms.stream,
        terms.usage,
        terms.token_ids,
        terms.unknown,
        replace(reading, shows_thoughts=shows),
        "grammar" in more,
    )
