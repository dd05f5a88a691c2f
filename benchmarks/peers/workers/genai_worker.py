"""onnxruntime-genai's Generator, static batches: ``MODEL_FOLDER``."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import onnxruntime_genai as og
from serving import scoring, serve


class Genai:
    """One model; a new generator for each measurement."""

    def __init__(self, folder: str) -> None:
        self.model = og.Model(folder)

    def start(self, prompts: list[list[int]], new: int) -> Any:
        """A generator whose prompts are computed."""
        params = og.GeneratorParams(self.model)
        params.set_search_options(
            max_length=len(prompts[0]) + new, batch_size=len(prompts), do_sample=False
        )
        generator = og.Generator(self.model, params)
        generator.append_tokens(np.asarray(prompts, dtype=np.int32))
        return generator

    def prefill(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time one prompt up to its first token."""
        start = time.perf_counter()
        self.start([request["tokens"]], 1).generate_next_token()
        return {"seconds": time.perf_counter() - start}

    def decode(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time greedy decoding of several sequences together; EOS must not end it."""
        new = request["new"]
        generator = self.start(request["prompts"], new + 1)
        generator.generate_next_token()
        start = time.perf_counter()
        done = 0
        while done < new and not generator.is_done():
            generator.generate_next_token()
            done += 1
        seconds = time.perf_counter() - start
        return {"seconds": seconds * new / max(1, done), "generated": done}

    def logits(self, tokens: list[int]) -> Any:
        """Logits [S, V] of one prompt."""
        return self.start([tokens], 0).get_output("logits")[0]


def main() -> None:
    genai = Genai(sys.argv[1])
    operations = {"prefill": genai.prefill, "decode": genai.decode, **scoring(genai.logits)}
    serve(operations, {"name": "onnxruntime-genai", "version": og.__version__})


if __name__ == "__main__":
    main()
