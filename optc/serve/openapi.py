"""The OpenAPI document of a server."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from optc.serve.admin.bodies import LoadAdapterBody, LoadModelBody
from optc.serve.admin.routes import ADMIN
from optc.serve.batches.batches_route import BatchBody
from optc.serve.bodies.chat import ChatBody
from optc.serve.bodies.completion import CompletionBody
from optc.serve.bodies.generate import GenerateBody
from optc.serve.bodies.tokens import DetokenizeBody, TokenizeBody
from optc.serve.messages.body import CountBody, MessagesBody
from optc.serve.responses.body import ResponseBody
from optc.serve.scoring.routes import SCORING
from optc.serve.tensors.embeddings import EmbeddingsBody

#: Routes with a body.
_POSTS: dict[str, tuple[type[BaseModel], str]] = {
    "/inference/v1/generate": (GenerateBody, "Continue tokens by tokens."),
    "/v1/completions": (CompletionBody, "Continue texts."),
    "/v1/chat/completions": (ChatBody, "The next message of a conversation."),
    "/v1/responses": (ResponseBody, "Go on with a conversation that is kept."),
    "/v1/responses/input_tokens": (ResponseBody, "Tokens of a conversation."),
    "/v1/messages": (MessagesBody, "The next message, in Anthropic's form."),
    "/v1/messages/count_tokens": (CountBody, "Tokens of a conversation, in Anthropic's form."),
    "/v1/embeddings": (EmbeddingsBody, "Vectors of texts."),
    **{path: (kind, str(handler.__doc__)) for path, (handler, kind) in SCORING.items()},
    "/v1/batches": (BatchBody, "Answer a file."),
    "/tokenize": (TokenizeBody, "Tokens of a text or a conversation."),
    "/detokenize": (DetokenizeBody, "The text of tokens."),
    **{
        path: (kind, str(handler.__doc__))
        for path, (_, handler, kind) in ADMIN.items()
        if kind is not None
    },
}
#: Routes that take a form with a file, and what else it may have.
_FORMS = {
    "/v1/audio/transcriptions": "The words of a sound.",
    "/v1/audio/translations": "The words of a sound, in English.",
}
_FORM_FIELDS = ("model", "language", "temperature", "response_format")
#: Routes without one.
_GETS = {
    "/v1/files": "Files of requests and of answers.",
    "/v1/models": "What there is to ask.",
    "/v2": "The server, as the Open Inference Protocol has it.",
    "/v2/health/live": "Does the server live?",
    "/v2/health/ready": "Does it take requests now?",
    "/health": "Is the process worth keeping?",
    "/ready": "Does it take requests now?",
    "/load": "How much runs and waits.",
    "/version": "Of optc.",
    "/admin/models": "All models, with what computes them; needs the admin key.",
    "/metrics": "For Prometheus.",
    "/status": "Counters of now, for the status page.",
}
#: Bodies of routes that add something by name.
_CHANGES = (LoadModelBody, LoadAdapterBody)
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
#: Statuses of answers that say what is wrong, by what is.
_WRONG = {
    "400": "Something is wrong with the request.",
    "401": "The key is missing or wrong.",
    "404": "There is no such model.",
    "409": "There is one of this name already.",
    "413": "The body is too long.",
    "415": "The body is no JSON.",
    "429": "Too many requests wait.",
    "503": "The server is loading or shutting down.",
}


async def openapi(request: Request) -> Response:
    """The document."""
    return JSONResponse(document())


@cache
def document() -> dict[str, Any]:
    """The document: paths, schemas of bodies, and the key."""
    kinds = [(kind, "validation") for kind, _ in _POSTS.values()]
    _, schemas = models_json_schema(kinds, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    paths: dict[str, Any] = {path: {"get": _get(text)} for path, text in _GETS.items()}
    paths |= {path: {"post": _post(kind, text)} for path, (kind, text) in _POSTS.items()}
    paths |= {path: {"post": _form(text)} for path, text in _FORMS.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "optc serve", "version": version("optc")},
        "paths": paths,
        "components": {
            "schemas": {**schemas["$defs"], "Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _get(text: str) -> dict[str, Any]:
    return {"summary": text, "responses": {"200": {"description": text}, **_wrong("401", "503")}}


def _form(text: str) -> dict[str, Any]:
    fields = {name: {"type": "string"} for name in _FORM_FIELDS}
    file = {"type": "string", "format": "binary"}
    schema = {"type": "object", "required": ["file"], "properties": {"file": file, **fields}}
    return {
        "summary": text,
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}},
        "responses": {
            "200": {"description": text, "content": {"application/json": {}}},
            **_wrong(*_WRONG.keys() - {"409"}),
        },
    }


def _post(kind: type[BaseModel], text: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {
        "summary": text,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": reference}},
        },
        "responses": {
            "200": {"description": text, "content": {"application/json": {}}},
            **_wrong(*_WRONG.keys() - ({"409"} if kind not in _CHANGES else set())),
        },
    }


def _wrong(*statuses: str) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {one: {"description": _WRONG[one], "content": error} for one in statuses}
