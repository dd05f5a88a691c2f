"""`ServedTensors`: a model of named tensors that requests may name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optc.runtime.tensors.embedder import Embedder
from optc.runtime.tensors.engine import TensorEngine
from optc.serve.tensors.joined_texts import JoinedTexts
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
        texts: Embeds texts; None where the model does not.
    """

    name: str
    engine: TensorEngine
    queue: WorkQueue
    created: int = 0
    texts: JoinedTexts | None = None

    @classmethod
    def of(
        cls, name: str, engine: TensorEngine, places: int | None, created: int = 0
    ) -> ServedTensors:
        """A model whose queue has so many places."""
        queue = WorkQueue(places)
        texts = JoinedTexts(engine, queue) if isinstance(engine, Embedder) else None
        return cls(name, engine, queue, created, texts)

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
