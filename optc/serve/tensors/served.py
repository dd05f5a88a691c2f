"""`ServedTensors`: a model of named tensors that requests may name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optc.runtime.tensors.embedder import Embedder
from optc.runtime.tensors.engine import TensorEngine
from optc.serve.api_errors import APIError
from optc.serve.tensors.work_queue import WorkQueue

#: Who made a model, for clients that ask.
OWNER = "optc"


@dataclass(frozen=True)
class ServedTensors:
    """A model of named tensors.

    Attributes:
        name: What requests call it.
        engine: That computes it.
        queue: Of the calls of its engine.
        created: When it was loaded, in seconds since 1970.
    """

    name: str
    engine: TensorEngine
    queue: WorkQueue
    created: int = 0

    @property
    def routes(self) -> str:
        """Where it can be asked, for messages."""
        infer = f"/v2/models/{self.name}/infer"
        return f"/v1/embeddings or {infer}" if isinstance(self.engine, Embedder) else infer

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


def embedder_of(model: ServedTensors) -> Embedder:
    """The engine of a model that embeds texts.

    Raises:
        APIError: It embeds none.
    """
    if isinstance(model.engine, Embedder):
        return model.engine
    message = f"the model {model.name!r} embeds no texts; ask {model.routes}"
    raise APIError(400, message, "model")
