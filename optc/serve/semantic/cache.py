"""`SemanticCache`: answers of questions that mean the same as the one that is asked."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.runtime.handle import Handle
from optc.runtime.requests.prompts import Chat
from optc.runtime.tensors.embedder import Embedder
from optc.serve.asking.asked import Asked
from optc.serve.models import ModelTable
from optc.serve.semantic.measured import check_wrong_hits, measured, similarities, unit
from optc.serve.semantic.pairs import SHIPPED
from optc.serve.semantic.words import same_words
from optc.serve.tensors.joined_texts import JoinedTexts

Float32 = npt.NDArray[np.float32]
#: Answers that are kept, of all contexts together; the oldest go first.
_MOST = 4096
#: Answers whose questions are compared: those of one context.
_MOST_OF_ONE = 256
#: Ends that time does not decide.
_WHOLE = frozenset({"stop", "length"})


@dataclass(frozen=True)
class Question:
    """The question of a request.

    Attributes:
        context: All else that its answer follows from, and who asks.
        text: It.
        vector: [D] of length 1.
    """

    context: str
    text: str
    vector: Float32


class SemanticCache:
    """Keeps answers by the last message of their conversations.

    Only that message may differ: in words that decide nothing, and as far as the encoder finds it
    near. All else must be equal: the model and its weights, the
    salt of who asks, the messages before, and every parameter.

    Args:
        name: Of the encoder.
        texts: Embeds questions.
        threshold: Cosine from which on two questions are one.
    """

    def __init__(self, name: str, texts: JoinedTexts, threshold: float) -> None:
        self._name, self._texts, self._threshold = name, texts, threshold
        self._kept: OrderedDict[str, list[tuple[Question, dict[str, Any]]]] = OrderedDict()
        self._count = 0

    @classmethod
    def of(cls, models: ModelTable, name: str, threshold: float) -> SemanticCache:
        """That of an encoder among the models, once the rate of its wrong hits is measured.

        Raises:
            InputError: There is no such encoder, or the rate is too high.
        """
        model = models.tensors.get(name)
        if model is None or model.texts is None or not isinstance(model.engine, Embedder):
            hint = "serve an artifact that embeds texts, and name it"
            raise InputError(f"{name!r} is no encoder", where="--semantic-cache", hint=hint)
        found = similarities(model.engine.embed, SHIPPED)
        check_wrong_hits(measured(found, SHIPPED, threshold), name)
        return cls(name, model.texts, threshold)

    async def question(self, asked: Asked, models: ModelTable) -> Question | None:
        """The question of a request; None where only its own answer will do.

        Raises:
            APIError: There is no room to embed it.
        """
        text, context = _parts(asked)
        model = models.tensors.get(self._name)
        if not text or model is None or model.texts is not self._texts:
            return None
        embedded = await self._texts.embed([text])
        return Question(context, text, unit(embedded.vectors)[0])

    def find(self, question: Question) -> dict[str, Any] | None:
        """An answer to the nearest question that is near enough, as a new one."""
        kept = [
            (one.vector, body)
            for one, body in self._kept.get(question.context, ())
            if same_words(one.text, question.text)
        ]
        if not kept:
            return None
        near = np.stack([vector for vector, _ in kept]) @ question.vector
        best = int(np.argmax(near))
        if not near[best] >= self._threshold:
            return None
        self._kept.move_to_end(question.context)
        body = kept[best][1]
        usage = body["usage"]
        details = {"cached_tokens": usage["prompt_tokens"]}
        return body | {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "usage": usage | {"prompt_tokens_details": details},
            "semantic_cache": {"similarity": round(float(near[best]), 4)},
        }

    def keep(self, question: Question, asked: Asked, handle: Handle, body: dict[str, Any]) -> None:
        """Keep an answer that ended by itself, of the weights that were asked."""
        served_by = handle.served_by
        if served_by is not None and served_by.digest not in ("", asked.model.origin.artifact):
            return
        if any(one["finish_reason"] not in _WHOLE for one in body["choices"]):
            return
        kept = self._kept.setdefault(question.context, [])
        self._kept.move_to_end(question.context)
        kept.append((question, body))
        self._count += 1
        if len(kept) > _MOST_OF_ONE:
            del kept[0]
            self._count -= 1
        while self._count > _MOST:
            _, gone = self._kept.popitem(last=False)
            self._count -= len(gone)


def _parts(asked: Asked) -> tuple[str, str]:
    """The last message of a conversation, and all else that its answer follows from. The message
    is empty where an answer to another one is never right: with tools, structures or
    log-probabilities, of several texts, of an adapter (which has no digest), in streams, or
    where the last message is not the user's."""
    (request,) = asked.requests
    prompt, params = request.prompt, request.params
    if not isinstance(prompt, Chat):
        return "", ""
    *before, last = prompt.messages
    content = last.get("content")
    is_plain = last.get("role") == "user" and isinstance(content, str)
    only_own = (
        not is_plain
        or asked.stream
        or request.adapter is not None
        or asked.n > 1
        or asked.grammar_of
        or asked.reading.tools
        or params.structure is not None
        or params.logprobs is not None
        or params.prompt_logprobs is not None
    )
    if only_own:
        return "", ""
    others = {name: value for name, value in last.items() if name != "content"}
    model = asked.model
    context = (
        model.name,
        model.created,
        model.origin,
        request.salt,
        params.with_defaults(model.engine.defaults),
        before,
        others,
        sorted(prompt.variables.items()),
        asked.token_ids,
        asked.reading.shows_thoughts,
    )
    return str(content), hashlib.sha256(repr(context).encode("utf-8", "replace")).hexdigest()
