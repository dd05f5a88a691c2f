"""Compiled kernels, kept as objects in the user's cache: most of a compile is LLVM's work, and
recipes of one model share most kernels.

Every kernel is compiled on its own, under a name made of what it is compiled from, so that an
engine has the same bytes whether its kernels come from the cache or not.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import tvm
from tvm import tirx
from tvm.target.codegen import llvm_version_major

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl import pipeline
from optc.system.cache_folder import (
    cache_folder,
    code_digest,
    forget_oldest,
    keep_whole,
    read_whole,
)

#: The newest that are kept; 30 KB each.
KEPT = 2048
_FOLDER = "kernels"
_DIGEST = hashlib.sha256


class KernelObjects:
    """Objects of kernels for ``isa``, from the cache where it has them.

    Args:
        isa: The instruction set.
        folder: Where they are kept; None is this user's cache.
    """

    def __init__(self, isa: Isa, folder: Path | None = None) -> None:
        self._folder = cache_folder() / _FOLDER if folder is None else folder
        self._isa = isa
        compiler = f"{tvm.__version__} {llvm_version_major()}"
        self._setting = f"{compiler} {code_digest()} {isa!r} {isa.tvm_target()}"
        self._kept: dict[str, bytes] = {}
        self.compiled = 0

    def symbol(self, key: str) -> str:
        """The name of the kernel made of ``key``: the same for the same kernel of any engine."""
        return "kernel_" + _DIGEST(f"{self._setting} {key}".encode()).hexdigest()[:32]

    def function(self, key: str, operands: int, make: Callable[[], tirx.PrimFunc]) -> tirx.PrimFunc:
        """The function for the kernel of ``key`` in the module that calls it with so many operands:
        the one of ``make``, or one without a body where its object is kept, since to write a kernel
        takes longer than to read it. `object` then does not look at it."""
        kept = read_whole(self._path(key))
        if kept is None:
            return make()
        self._kept[key] = kept
        parameters = [tirx.Var(f"operand{i}", "handle") for i in range(operands)]
        return tirx.PrimFunc(parameters, tirx.Evaluate(0))

    def object(self, key: str, kernel: tirx.PrimFunc) -> bytes:
        """The compiled ``kernel``, whose function is `symbol` of ``key``."""
        kept = self._kept.get(key) or read_whole(self._path(key))
        if kept is not None:
            return kept
        self.compiled += 1
        made = _compile(self.symbol(key), kernel, self._isa)
        keep_whole(self._path(key), made)
        return made

    def _path(self, key: str) -> Path:
        return self._folder / f"{self.symbol(key)}.o"

    def prune(self) -> None:
        """Forget the objects that were not used for longest, beyond `KEPT`."""
        forget_oldest(self._folder, KEPT)


def without(names: frozenset[str]) -> str:
    """A name for ``tir_pipeline=``: `pipeline`, for a module whose kernels ``names`` are compiled
    elsewhere."""

    @tvm.transform.module_pass(opt_level=0)
    def leave_out(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        rest = {v: f for v, f in module.functions_items() if v.name_hint not in names}
        return tvm.IRModule(rest, attrs=module.attrs)

    return pipeline.register(leave_out)


def _compile(symbol: str, kernel: tirx.PrimFunc, isa: Isa) -> bytes:
    module = tvm.IRModule({symbol: kernel.with_attr("global_symbol", symbol)})
    built = tirx.build(module, target=isa.tvm_target(), pipeline=pipeline.register())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.o"
        built.write_to_file(str(path))
        return path.read_bytes()
