"""The model of AVX-VNNI in C, for this process."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from optc.backends.tvm.compiling.link import linker_command
from optc.system.hardware.target import host_features, known_targets

TARGET = known_targets()["x86-64-v3-vnni"]
_SOURCE = Path(__file__).with_name("model.c")
_FLAGS = ("-O3", "-shared", "-fPIC")


class Model:
    """Computes the products that the processor refuses."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._count = ctypes.c_int64.in_dll(library, "optc_vnni_count")
        library.optc_vnni_install()

    def count(self) -> int:
        """Products of bytes since the last call."""
        found, self._count.value = self._count.value, 0
        return found


def lacking() -> str:
    """Empty if code for AVX-VNNI runs here, on the processor or the model, else why not."""
    missing = set(TARGET.missing_on(host_features())) - {"avx_vnni"}
    return f"this machine lacks {', '.join(sorted(missing))}" if missing else ""


@cache
def has_vnni() -> bool:
    """True if the processor has the instruction."""
    return not TARGET.missing_on(host_features())


@cache
def model() -> Model:
    """The model, installed once; on a processor with AVX-VNNI it counts nothing."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "model.so"
        command = (*linker_command(), *_FLAGS, "-o", str(library), "-x", "c", str(_SOURCE))
        subprocess.run(command, check=True)
        return Model(ctypes.CDLL(str(library)))
