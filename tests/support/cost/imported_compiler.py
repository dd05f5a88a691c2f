"""TVM and all kernels, imported once for the forks of `tests.support.cost.forked_compiler`."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from optc.system.cache_folder import code_digest

# as in `optc.backends.tvm.compiling.child`
sys.modules["torch"] = None  # type: ignore[assignment]
import_module("optc.backends.tvm.compiling.compiler")
for module, *_ in import_module("optc.backends.tvm.compiling.emit").KERNELS.values():
    import_module(f"optc.backends.tvm.kernels.{module}")
code_digest()
gc.freeze()
