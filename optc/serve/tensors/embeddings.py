"""``/v1/embeddings``: vectors of texts."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from starlette.requests import Request
from starlette.responses import Response

from optc.runtime.tensors.embedder import Embedded, Embedder
from optc.serve.api_errors import APIError
from optc.serve.asking.read_body import read_body, validated
from optc.serve.bodies.base import Body, Tokens
from optc.serve.context import service_of
from optc.serve.event_stream import unless_left
from optc.serve.guards.access_log import facts_of
from optc.serve.models import ModelTable
from optc.serve.tensors.joined_texts import JoinedTexts
from optc.serve.tensors.served import ServedTensors

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


@dataclass(frozen=True)
class AskedVectors:
    """A body that has been read.

    Attributes:
        model: Who answers.
        joined: Embeds its texts beside those of others.
        texts: Whose vectors are wanted.
        shown: A vector as the answer has it.
    """

    model: ServedTensors
    joined: JoinedTexts
    texts: list[str]
    shown: Callable[[Float32], Any]

    async def answer(self) -> dict[str, Any]:
        """The body of the answer.

        Raises:
            APIError: There is no room.
        """
        return await asyncio.to_thread(self._answer, await self.joined.embed(self.texts))

    def _answer(self, found: Embedded) -> dict[str, Any]:
        tokens = sum(found.token_counts)
        return {
            "object": "list",
            "model": self.model.name,
            "data": [
                {"object": "embedding", "index": index, "embedding": self.shown(vector)}
                for index, vector in enumerate(found.vectors)
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }


async def embeddings(request: Request) -> Response:
    """Vectors of texts."""
    service, facts = service_of(request), facts_of(request)
    most = service.settings.limits.body_bytes
    with service.preparing():
        read = lambda body: ask_embeddings(body, service.models)  # noqa: E731
        asked = await read_body(request, most, read)
        facts["model"] = asked.model.name
        found = await unless_left(request.receive, asked.answer())
    facts["prompt_tokens"] = found["usage"]["prompt_tokens"]
    content = await asyncio.to_thread(msgspec.json.encode, found)  # of many texts it is long
    return Response(content, media_type="application/json")


def ask_embeddings(body: dict[str, Any], models: ModelTable) -> AskedVectors:
    """Read a body.

    Raises:
        APIError: It is wrong.
    """
    validated(EmbeddingsBody, body)
    model = models.find_tensors(body.get("model"))
    embedder, joined = model.engine, model.texts
    if not isinstance(embedder, Embedder) or joined is None:
        message = f"the model {model.name!r} embeds no texts; ask {model.routes}"
        raise APIError(400, message, "model")
    texts = _texts(body["input"])
    width = body.get("dimensions")
    if width not in (None, embedder.width):
        message = f"dimensions: the model gives {embedder.width} numbers, no other count"
        raise APIError(400, message, "dimensions")
    shown = _base64 if body.get("encoding_format") == "base64" else _numbers
    return AskedVectors(model, joined, texts, shown)


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
