"""`ServedTensors`: a model of named tensors that requests may name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optc.runtime.speech.transcriber import Transcriber
from optc.runtime.tensors.classifier import Classifier
from optc.runtime.tensors.embedder import Embedder
from optc.runtime.tensors.engine import TensorEngine
from optc.runtime.tensors.text_classifiers import Reranker, TextClassifier, TokenClassifier
from optc.serve.api_errors import APIError
from optc.serve.tensors.joined_texts import JoinedTexts
from optc.serve.tensors.work_queue import WorkQueue

#: Who made a model, for clients that ask.
OWNER = "optc"
#: The first route of an engine besides those of named tensors, by its kind.
_ROUTES: dict[type[TensorEngine], str] = {
    Embedder: "/v1/embeddings",
    Reranker: "/v1/rerank",
    TextClassifier: "/v1/classify",
    TokenClassifier: "/v1/classify",
    Classifier: "/v1/classify",
}


@dataclass(frozen=True)
class ServedTensors:
    """A model of named tensors.

    Attributes:
        name: What requests call it.
        engine: That computes it.
        queue: Of the calls of its engine.
        created: When it was loaded, in seconds since 1970.
        texts: Embeds texts; None where the model does not.
    """

    name: str
    engine: TensorEngine | Transcriber
    queue: WorkQueue
    created: int = 0
    texts: JoinedTexts | None = None

    @classmethod
    def of(
        cls, name: str, engine: TensorEngine | Transcriber, places: int | None, created: int = 0
    ) -> ServedTensors:
        """A model whose queue has so many places."""
        queue = WorkQueue(places)
        texts = JoinedTexts(engine, queue) if isinstance(engine, Embedder) else None
        return cls(name, engine, queue, created, texts)

    @property
    def routes(self) -> str:
        """The routes of its requests, for messages."""
        if isinstance(self.engine, Transcriber):
            return "/v1/audio/transcriptions"
        infer = f"/v2/models/{self.name}/infer"
        own = next((path for kind, path in _ROUTES.items() if isinstance(self.engine, kind)), None)
        return f"{own} or {infer}" if own else infer

    def to_json(self) -> dict[str, Any]:
        """An entry of ``/v1/models``."""
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": OWNER,
            "root": self.name,
            "parent": None,
        }

    def close(self) -> None:
        """Turn away what waits, and free the engine."""
        self.queue.closed = True
        self.engine.close()


def transcriber_of(model: ServedTensors) -> Transcriber:
    """The engine of a model that writes down speech.

    Raises:
        APIError: It writes down none.
    """
    if isinstance(model.engine, Transcriber):
        return model.engine
    message = f"the model {model.name!r} writes down no speech; ask {model.routes}"
    raise APIError(400, message, "model")


def tensors_of(model: ServedTensors) -> TensorEngine:
    """The engine of a model that is called with named tensors.

    Raises:
        APIError: It is called otherwise.
    """
    if isinstance(model.engine, TensorEngine):
        return model.engine
    message = f"the model {model.name!r} takes no tensors by name; ask {model.routes}"
    raise APIError(400, message, "model")
