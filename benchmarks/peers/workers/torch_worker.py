"""transformers with torch.compile, bfloat16 weights, a static cache: ``MODEL_FOLDER THREADS``."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
import torch._dynamo
from serving import scoring, serve
from transformers import AutoModelForCausalLM, StaticCache

#: Caches are multiples of this, so that warm-up and measurement have the same shapes.
CACHE_UNIT = 256


class Compiled:
    """One model; prefill and decode are compiled for each shape when it first comes."""

    def __init__(self, folder: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
        # Beyond the limit (8), shapes would run uncompiled.
        torch._dynamo.config.recompile_limit = 64
        self.forward = torch.compile(self.model.forward, dynamic=False)
        self.caches: dict[tuple[int, int], Any] = {}

    @torch.inference_mode()
    def extend(self, tokens: torch.Tensor, cache: Any, start: int) -> torch.Tensor:
        """Append tokens [B, S] to the cache; greedy next tokens [B, 1]."""
        positions = torch.arange(start, start + tokens.shape[1])
        logits = self.forward(
            input_ids=tokens,
            past_key_values=cache,
            position_ids=positions[None].expand(len(tokens), -1),
            logits_to_keep=1,
            use_cache=True,
        ).logits
        return logits.argmax(dim=-1)

    @torch.inference_mode()
    def cache(self, batch: int, length: int) -> Any:
        """An empty cache for at least ``length`` tokens of ``batch`` sequences."""
        length = -(-length // CACHE_UNIT) * CACHE_UNIT
        if (batch, length) not in self.caches:
            cache = StaticCache(config=self.model.config, max_cache_len=length)
            self.caches[batch, length] = cache
        self.caches[batch, length].reset()
        return self.caches[batch, length]

    def prefill(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time one prompt."""
        tokens = torch.tensor([request["tokens"]])
        cache = self.cache(1, tokens.shape[1])
        start = time.perf_counter()
        self.extend(tokens, cache, 0)
        return {"seconds": time.perf_counter() - start}

    def decode(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time greedy decoding of several sequences together."""
        tokens, new = torch.tensor(request["prompts"]), request["new"]
        length = tokens.shape[1]
        cache = self.cache(len(tokens), length + new + 1)
        current = self.extend(tokens, cache, 0)
        start = time.perf_counter()
        for offset in range(new):
            current = self.extend(current, cache, length + offset)
        return {"seconds": time.perf_counter() - start}

    @torch.inference_mode()
    def logits(self, tokens: list[int]) -> Any:
        """Logits [S, V] of one prompt."""
        return self.model(input_ids=torch.tensor([tokens])).logits[0].float().numpy()


def main() -> None:
    peer = Compiled(sys.argv[1], int(sys.argv[2]))
    operations = {"prefill": peer.prefill, "decode": peer.decode, **scoring(peer.logits)}
    serve(operations, {"name": "torch.compile", "version": torch.__version__})


if __name__ == "__main__":
    main()
