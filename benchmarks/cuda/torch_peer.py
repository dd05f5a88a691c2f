"""The same steps by transformers under torch.compile: bfloat16 weights, a static cache."""

from __future__ import annotations

import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, StaticCache

from optc.proof.bench.profile import Shape


class TorchModel:
    """A model on the GPU; its forward is compiled for each shape when it first comes."""

    def __init__(self, folder: str, device: str = "cuda") -> None:
        self.device = device
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        self.model = model.to(device).eval()
        self.forward = torch.compile(self.model.forward, mode="reduce-overhead", dynamic=False)

    def weight_bytes(self) -> int:
        """Bytes of the parameters that a step reads: all but an embedding of its own."""
        skipped = 0
        embedding, head = self.model.get_input_embeddings(), self.model.get_output_embeddings()
        if head is None or embedding.weight is not head.weight:
            skipped = embedding.weight.nbytes
        return sum(p.nbytes for p in self.model.parameters()) - skipped


class TorchSteps:
    """Steps of one shape: ``rows`` new tokens of each sequence behind those before."""

    def __init__(self, model: TorchModel, shape: Shape, steps: int) -> None:
        self._model = model
        self._shape = shape
        self._at = shape.context - shape.rows
        length = shape.context + shape.rows * steps
        self._cache: Any = StaticCache(config=model.model.config, max_cache_len=length)
        if self._at:
            self._extend(self._at, 0, model.model.forward)

    @torch.inference_mode()
    def time(self) -> float:
        """Seconds of one step, greedy tokens to host memory."""
        start = time.perf_counter()
        self._extend(self._shape.rows, self._at, self._model.forward).cpu()
        seconds = time.perf_counter() - start
        if self._shape.phase == "decode":
            self._at += self._shape.rows
        else:
            self._cache.reset()
        return seconds

    @torch.inference_mode()
    def _extend(self, rows: int, start: int, forward: Any) -> torch.Tensor:
        count, device = self._shape.sequences, self._model.device
        tokens = torch.ones((count, rows), dtype=torch.long, device=device)
        positions = torch.arange(start, start + rows, device=device)[None].expand(count, -1)
        logits: torch.Tensor = forward(
            input_ids=tokens,
            past_key_values=self._cache,
            position_ids=positions,
            logits_to_keep=1,
            use_cache=True,
        ).logits
        return logits.argmax(dim=-1)
