"""``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from optc.runtime.openai.fields import take_variables
from optc.runtime.text.tokenizer import Tokenizer
from optc.serve.answering.token_texts import token_texts
from optc.serve.api_errors import APIError
from optc.serve.asking.messages import for_template
from optc.serve.asking.read_body import read_body, validated
from optc.serve.bodies.tokens import DetokenizeBody, TokenizeBody
from optc.serve.context import service_of
from optc.serve.models import ModelTable, ServedModel, check_model

Work = Callable[[], dict[str, Any]]


async def tokenize(request: Request) -> Response:
    """Tokens of a text or a conversation, as a request would have them."""
    return await _answer(request, _tokenize)


async def detokenize(request: Request) -> Response:
    """The text of tokens."""
    return await _answer(request, _detokenize)


async def _answer(
    request: Request, work_of: Callable[[dict[str, Any], ModelTable], Work]
) -> Response:
    service = service_of(request)
    with service.preparing():
        read = lambda body: work_of(body, service.models)  # noqa: E731
        work = await read_body(request, service.settings.limits.body_bytes, read)
        return JSONResponse(await asyncio.to_thread(work))


def _tokenize(body: dict[str, Any], models: ModelTable) -> Work:
    validated(TokenizeBody, body)
    model = models.find(body.get("model"))
    tokenizer = _tokenizer(model)
    text, messages = body.get("prompt"), body.get("messages")
    if (text is None) == (messages is None):
        raise APIError(400, "give a prompt or messages", "prompt")
    special = body.get("add_special_tokens") is not False

    def work() -> dict[str, Any]:
        if messages is None:
            tokens = tokenizer.encode(str(text), add_special_tokens=special)
        else:
            check_model(model)
            fields = {name: value for name, value in body.items() if value is not None}
            said = for_template(messages, tokenizer.chat_template)
            tokens = tokenizer.encode_chat(said, **take_variables(fields))
        found = {"count": len(tokens), "max_model_len": model.engine.max_context, "tokens": tokens}
        if body.get("return_token_strs"):
            found["token_strs"] = [token_texts(tokenizer).text_of(token) for token in tokens]
        return found

    return work


def _detokenize(body: dict[str, Any], models: ModelTable) -> Work:
    validated(DetokenizeBody, body)
    model = models.find(body.get("model"))
    tokenizer, tokens = _tokenizer(model), body["tokens"]
    most = model.engine.spec.vocab_size
    if any(not 0 <= token < most for token in tokens):
        raise APIError(400, f"tokens go from 0 to {most - 1}", "tokens")
    return lambda: {"prompt": tokenizer.decode(tokens, skip_special_tokens=False)}


def _tokenizer(model: ServedModel) -> Tokenizer:
    tokenizer = model.engine.tokenizer
    if tokenizer is None:
        raise APIError(400, f"the model {model.name!r} has no tokenizer", "model")
    return tokenizer
