"""Compile what the worker calls of ik_llama.cpp's C interface: ``SOURCE BUILD``.

The compiler reads the layout of its structures from its own header: they differ from those of
llama.cpp.
"""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from pathlib import Path

from cffi import FFI

_DECLARATIONS = """
struct llama_model;
struct llama_context;
struct llama_model_params { bool use_mmap; bool repack_tensors; ...; };
struct llama_context_params {
    uint32_t n_ctx; uint32_t n_batch; uint32_t n_ubatch; uint32_t n_seq_max;
    uint32_t n_threads; uint32_t n_threads_batch; bool flash_attn; ...;
};
typedef struct llama_batch {
    int32_t n_tokens; int32_t *token; int32_t *pos; int32_t *n_seq_id; int32_t **seq_id;
    int8_t *logits; ...;
} llama_batch;
void llama_backend_init(void);
struct llama_model_params llama_model_default_params(void);
struct llama_context_params llama_context_default_params(void);
struct llama_model *llama_model_load_from_file(const char *, struct llama_model_params);
struct llama_context *llama_init_from_model(struct llama_model *, struct llama_context_params);
int32_t llama_n_vocab(const struct llama_model *);
void llama_kv_cache_clear(struct llama_context *);
struct llama_batch llama_batch_init(int32_t, int32_t, int32_t);
void llama_batch_free(struct llama_batch);
int32_t llama_decode(struct llama_context *, struct llama_batch);
float *llama_get_logits_ith(struct llama_context *, int32_t);
"""


def main() -> None:
    source, build = Path(sys.argv[1]), Path(sys.argv[2])
    libraries = sorted({str(file.parent) for file in build.rglob("lib*.so")})
    binding = FFI()
    binding.cdef(_DECLARATIONS)
    binding.set_source(
        "ik_llama",
        '#include "llama.h"',
        include_dirs=[str(source / "include"), str(source / "ggml" / "include")],
        library_dirs=libraries,
        libraries=["llama"],
        extra_link_args=[f"-Wl,-rpath,{folder}" for folder in libraries],
    )
    with tempfile.TemporaryDirectory() as scratch:
        compiled = Path(binding.compile(tmpdir=scratch))
        target = Path(sysconfig.get_path("platlib")) / compiled.name
        target.write_bytes(compiled.read_bytes())


if __name__ == "__main__":
    main()
