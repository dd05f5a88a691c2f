"""``/v1/embeddings``: vectors of texts."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from optc.serve.api_errors import APIError
from optc.serve.asking.read_body import read_body, validated
from optc.serve.bodies.base import Body, Tokens
from optc.serve.context import service_of
from optc.serve.event_stream import unless_left
from optc.serve.guards.access_log import facts_of
from optc.serve.models import ModelTable
from optc.serve.tensors.served import ServedTensors, embedder_of

Float32 = npt.NDArray[np.float32]
#: Texts of one request, as of OpenAI's API.
MOST_TEXTS = 2048


class EmbeddingsBody(Body):
    """Texts whose vectors are wanted."""

    model: str | None = None
    input: str | list[str] | Tokens | list[Tokens]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None


async def embeddings(request: Request) -> Response:
    """Vectors of texts."""
    service, facts = service_of(request), facts_of(request)
    most = service.settings.limits.body_bytes
    with service.preparing():
        model, work = await read_body(
            request, most, lambda body: ask_embeddings(body, service.models)
        )
        facts["model"] = model.name
        found = await unless_left(request.receive, model.queue.run(work))
    facts["prompt_tokens"] = found["usage"]["prompt_tokens"]
    return JSONResponse(found)


def ask_embeddings(
    body: dict[str, Any], models: ModelTable
) -> tuple[ServedTensors, Callable[[], dict[str, Any]]]:
    """The model that a body names, and what computes the answer.

    Raises:
        APIError: The body is wrong.
    """
    validated(EmbeddingsBody, body)
    model = models.find_tensors(body.get("model"))
    embedder = embedder_of(model)
    texts = _texts(body["input"])
    width = body.get("dimensions")
    if width not in (None, embedder.width):
        message = f"dimensions: the model gives {embedder.width} numbers, no other count"
        raise APIError(400, message, "dimensions")
    shown = _base64 if body.get("encoding_format") == "base64" else _numbers

    def work() -> dict[str, Any]:
        vectors = embedder.embed(texts)
        tokens = sum(embedder.token_counts(texts))
        return {
            "object": "list",
            "model": model.name,
            "data": [
                {"object": "embedding", "index": index, "embedding": shown(vector)}
                for index, vector in enumerate(vectors)
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }

    return model, work


def _texts(given: Any) -> list[str]:
    """The texts of ``input``.

    Raises:
        APIError: There are none, too many, or tokens.
    """
    texts = [given] if isinstance(given, str) else list(given)
    if not texts or len(texts) > MOST_TEXTS:
        raise APIError(400, f"input: give 1 to {MOST_TEXTS} texts", "input")
    if not all(isinstance(one, str) for one in texts):
        # Clients that count tokens by themselves take the tokenizer of another model.
        message = "input: give texts, not tokens (langchain: check_embedding_ctx_length=False)"
        raise APIError(400, message, "input")
    if "" in texts:
        raise APIError(400, "input: a text is empty", "input")
    return texts


def _numbers(vector: Float32) -> list[float]:
    return vector.tolist()


def _base64(vector: Float32) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
