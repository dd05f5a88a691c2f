"""llama.cpp through llama-cpp-python's C binding: ``MODEL.gguf THREADS BATCH_THREADS``."""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

import llama_cpp as lc
import numpy as np
from serving import negative_log_likelihood, serve

CONTEXT = 8192


class Llama:
    """One model and one context with up to 32 sequences."""

    def __init__(self, path: str, threads: int, batch_threads: int) -> None:
        lc.llama_backend_init()
        self.model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
        options = lc.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = CONTEXT, 2048, 512
        options.n_seq_max, options.n_threads, options.n_threads_batch = 32, threads, batch_threads
        options.kv_unified = True
        self.context = lc.llama_init_from_model(self.model, options)
        self.vocab_size = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(self.model))

    def clear(self) -> None:
        """Forget all sequences."""
        lc.llama_memory_clear(lc.llama_get_memory(self.context), True)

    def step(self, rows: list[tuple[int, int, int, bool]]) -> None:
        """Decode rows of (token, position, sequence, wants logits)."""
        batch = lc.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for index, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[index], batch.pos[index] = token, position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            batch.logits[index] = wanted
        if lc.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")
        lc.llama_batch_free(batch)

    def logits(self, index: int) -> Any:
        """Logits [V] of row ``index`` of the last step."""
        pointer = lc.llama_get_logits_ith(self.context, index)
        return np.ctypeslib.as_array(
            ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self.vocab_size,)
        )

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

    def perplexity(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sum the negative log-likelihood of windows."""
        total, count = 0.0, 0
        for window in request["windows"]:
            self.clear()
            self.step([(t, i, 0, True) for i, t in enumerate(window)])
            rows = np.stack([self.logits(i) for i in range(len(window) - 1)])
            total += negative_log_likelihood(rows, window[1:])
            count += len(window) - 1
        return {"nll": total, "tokens": count}


def main() -> None:
    path, threads, batch_threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    llama = Llama(path, threads, batch_threads)
    operations = {
        "prefill": llama.prefill,
        "decode": llama.decode,
        "perplexity": llama.perplexity,
    }
    serve(operations, {"name": "llama.cpp", "version": lc.__version__})


if __name__ == "__main__":
    main()
