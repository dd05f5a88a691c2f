"""The operations of llama.cpp and ik_llama.cpp, over steps of rows."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from serving import Operation, scoring

CONTEXT = 8192


class Llama(ABC):
    """One model and one context with up to 32 sequences.

    ``api`` has the functions of llama.h, those for batches under the names that both libraries
    give them.
    """

    def __init__(self, api: Any, context: Any) -> None:
        self.api, self.context = api, context

    @abstractmethod
    def clear(self) -> None:
        """Forget all sequences."""

    @abstractmethod
    def logits(self, index: int) -> Any:
        """Logits [V] of row ``index`` of the last step."""

    def step(self, rows: list[tuple[int, int, int, bool]]) -> None:
        """Decode rows of (token, position, sequence, wants logits)."""
        batch = self.api.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for index, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[index], batch.pos[index] = token, position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            batch.logits[index] = wanted
        if self.api.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")
        self.api.llama_batch_free(batch)

    @property
    def operations(self) -> dict[str, Operation]:
        """By name, as `serving` wants them."""
        return {"prefill": self.prefill, "decode": self.decode, **scoring(self.window_logits)}

    def prefill(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time one prompt."""
        tokens = request["tokens"]
        self.clear()
        start = time.perf_counter()
        self.step([(t, i, 0, i == len(tokens) - 1) for i, t in enumerate(tokens)])
        self.logits(len(tokens) - 1)
        return {"seconds": time.perf_counter() - start}

    def decode(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time greedy decoding of several sequences together."""
        self.clear()
        tokens, position = [], len(request["prompts"][0])
        for sequence, prompt in enumerate(request["prompts"]):
            last = len(prompt) - 1
            self.step([(t, i, sequence, i == last) for i, t in enumerate(prompt)])
            tokens.append(int(self.logits(last).argmax()))
        start = time.perf_counter()
        for offset in range(request["new"]):
            self.step([(t, position + offset, s, True) for s, t in enumerate(tokens)])
            tokens = [int(self.logits(i).argmax()) for i in range(len(tokens))]
        return {"seconds": time.perf_counter() - start}

    def window_logits(self, tokens: list[int]) -> Any:
        """Logits [S, V] of one prompt."""
        self.clear()
        self.step([(t, i, 0, True) for i, t in enumerate(tokens)])
        return np.stack([self.logits(i) for i in range(len(tokens))])
