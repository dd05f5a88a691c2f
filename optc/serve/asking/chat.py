"""Requests of ``/v1/chat/completions``, as the engine takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from optc.runtime.openai.fields import take_logprobs, take_variables
from optc.runtime.openai.structures import has_structure, pop_structure
from optc.runtime.parsing.begun import prompt_begins_thought
from optc.runtime.parsing.reading import Reading
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.requests.prompts import Chat
from optc.runtime.text.tokenizer import Tokenizer
from optc.serve.api_errors import APIError
from optc.serve.asking.asked import Asked, Asker
from optc.serve.asking.messages import for_template
from optc.serve.asking.read_body import validated
from optc.serve.asking.sampling import check_completions, fields_of, take_terms
from optc.serve.asking.tools import (
    answer_grammar,
    check_tools,
    grammar_of,
    reading_of,
    strict_grammar,
    take_allowed,
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
    check_tools(body.get("tools") or ())
    only = take_allowed(fields)
    shows = bool(fields.pop("include_reasoning", True))
    variables = take_variables(fields)
    messages, told = told_in_text(messages, variables, tokenizer)
    reading = told or reading_of(tokenizer.chat_template, variables.get("tools") or ())
    if body.get("parallel_tool_calls") is False:
        reading = replace(reading, most_calls=1)
    reading, must_call = take_choice(fields, reading)
    begun = prompt_begins_thought(messages, variables, tokenizer, reading.thoughts)
    reading = replace(reading, in_thought=begun)
    more: dict[str, Any] = take_logprobs(fields, chat=True)
    more["grammar"], made_of = _grammar(fields, body, reading, tokenizer, (must_call, only))
    if reading.needs_special_tokens(tokenizer):
        fields.setdefault("skip_special_tokens", False)
    if "max_tokens" not in fields and "max_tokens" not in model.engine.defaults:
        fields["max_tokens"] = None  # as many as the context holds
    terms = take_terms(fields, body, model, asker, limits, **more)
    check_completions(1, terms.params.n, limits)
    request = GenerationRequest(
        Chat(messages, variables), terms.params, whole_text=True, **terms.served
    )
    return Asked(
        model,
        (request,),
        terms.params.n,
        terms.stream,
        terms.usage,
        terms.token_ids,
        terms.unknown,
        replace(reading, shows_thoughts=shows),
        made_of,
    )


def _grammar(
    fields: dict[str, Any],
    body: Mapping[str, Any],
    reading: Reading,
    tokenizer: Tokenizer,
    choice: tuple[bool, bool],
) -> tuple[str | None, str]:
    """The grammar that follows from tools and thoughts, if one does, and the field that it is made
    of; fields that it follows are taken out. ``choice`` says whether the model must call, and
    whether only some tools may be called.

    Raises:
        APIError, OptcError: Something of it is wrong.
    """
    must_call, only = choice
    form = "response_format" if "response_format" in fields else "structured_outputs"
    if must_call:
        fields.pop("response_format", None)  # of texts, and there will be none
        if has_structure(fields):
            message = "a message that must call has no text: leave structured_outputs out"
            raise APIError(400, message, "structured_outputs")
        return grammar_of(reading, tokenizer), "tools"
    if not has_structure(fields):
        tools = body["tools"] if reading.tools else ()
        return strict_grammar(reading, tokenizer, tools, only=only), "tools" if tools else ""
    wanted = pop_structure(fields)
    # OpenAI's field is about texts, so that tools may be called; vLLM's is about all that is said.
    found = answer_grammar(reading, tokenizer, wanted, calls=form == "response_format")
    if found is None:
        fields |= wanted
    return found, form if found else ""
