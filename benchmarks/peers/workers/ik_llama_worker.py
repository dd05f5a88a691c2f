"""ik_llama.cpp through its own C interface: ``MODEL.gguf THREADS BATCH_THREADS``."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from ik_llama import ffi, lib
from llama_operations import CONTEXT, Llama
from serving import serve


class IkLlama(Llama):
    """ik_llama.cpp; weights are repacked at load where it has a layout of rows for them."""

    def __init__(self, path: str, threads: int, batch_threads: int) -> None:
        lib.llama_backend_init()
        loading = lib.llama_model_default_params()
        loading.repack_tensors, loading.use_mmap = True, False
        self.model = lib.llama_model_load_from_file(path.encode(), loading)
        if not self.model:
            raise RuntimeError(f"ik_llama.cpp cannot load {path}")
        options = lib.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = CONTEXT, 2048, 512
        options.n_seq_max, options.n_threads, options.n_threads_batch = 32, threads, batch_threads
        options.flash_attn = True
        super().__init__(lib, lib.llama_init_from_model(self.model, options))
        self.vocab_size = lib.llama_n_vocab(self.model)

    def clear(self) -> None:
        """Forget all sequences."""
        lib.llama_kv_cache_clear(self.context)

    def logits(self, index: int) -> Any:
        """Logits [V] of row ``index`` of the last step."""
        pointer = lib.llama_get_logits_ith(self.context, index)
        return np.frombuffer(ffi.buffer(pointer, 4 * self.vocab_size), np.float32)


def main() -> None:
    path, threads, batch_threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    llama = IkLlama(path, threads, batch_threads)
    serve(llama.operations, {"name": "ik_llama.cpp", "version": sys.argv[4]})


if __name__ == "__main__":
    main()
