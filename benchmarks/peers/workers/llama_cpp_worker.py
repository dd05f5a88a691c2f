"""llama.cpp through llama-cpp-python's C binding: ``MODEL.gguf THREADS BATCH_THREADS``."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import llama_cpp as lc
import numpy as np
from llama_operations import CONTEXT, Llama
from serving import serve


class LlamaCpp(Llama):
    """llama.cpp."""

    def __init__(self, path: str, threads: int, batch_threads: int) -> None:
        lc.llama_backend_init()
        self.model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
        options = lc.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = CONTEXT, 2048, 512
        options.n_seq_max, options.n_threads, options.n_threads_batch = 32, threads, batch_threads
        options.kv_unified = True
        super().__init__(lc, lc.llama_init_from_model(self.model, options))
        self.vocab_size = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(self.model))

    def clear(self) -> None:
        """Forget all sequences."""
        lc.llama_memory_clear(lc.llama_get_memory(self.context), True)

    def logits(self, index: int) -> Any:
        """Logits [V] of row ``index`` of the last step."""
        pointer = lc.llama_get_logits_ith(self.context, index)
        return np.ctypeslib.as_array(
            ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self.vocab_size,)
        )


def main() -> None:
    path, threads, batch_threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    llama = LlamaCpp(path, threads, batch_threads)
    serve(llama.operations, {"name": "llama.cpp", "version": lc.__version__})


if __name__ == "__main__":
    main()
