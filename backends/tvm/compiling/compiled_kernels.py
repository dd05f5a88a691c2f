"""Kernels on their own, compiled and loaded as those of an engine are. Needs TVM."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from optc.backends.tvm.compiling.compiler import export
from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl import pipeline
from optc.backends.tvm.loaded.thread_pool import SOURCE as THREAD_POOL
from optc.backends.tvm.loaded.thread_pool import load_library


def compiled_kernels(functions: dict[str, Any], isa: Isa) -> Any:
    """The functions by name, as a library whose loops run on the threads of an engine's pool, as
    many as ``want_threads`` was told."""
    named = {name: f.with_attr("global_symbol", name) for name, f in functions.items()}
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernels.so"
        module = tvm.IRModule(named)
        compiled = tvm.compile(module, isa.tvm_target(), tir_pipeline=pipeline.register())
        export(compiled, library, THREAD_POOL)
        return load_library(tvm_ffi, library)
