"""The model of AMX in C, for this process."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from optc.backends.tvm.compiling.link import linker_command
from optc.system.hardware.target import host_features, known_targets

TARGET = known_targets()["x86-64-amx"]
_SOURCE = Path(__file__).with_name("model.c")
_FLAGS = ("-O3", "-mfma", "-ffp-contract=off", "-shared", "-fPIC")


@dataclass(frozen=True)
class Counts:
    """Instructions of tiles, and multiply-adds.

    Attributes:
        config, release, zero, load, store: Instructions.
        dots: Products of bytes.
        bf16_dots: Products of bfloat16.
        multiply_adds: In products of bytes.
        bf16_multiply_adds: In products of bfloat16.
    """

    config: int
    release: int
    zero: int
    load: int
    store: int
    dots: int
    bf16_dots: int
    multiply_adds: int
    bf16_multiply_adds: int


class Model:
    """Computes tile instructions that the processor refuses."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._counts = (ctypes.c_int64 * 9).in_dll(library, "optc_amx_counts")
        library.optc_amx_install()

    def counts(self) -> Counts:
        """All since the last call."""
        found = Counts(*self._counts)
        self._counts[:] = [0] * 9
        return found


def lacking() -> str:
    """Empty if code for AMX runs here, on the processor or the model, else why not."""
    missing = [f for f in TARGET.missing_on(host_features()) if not f.startswith("amx_")]
    return f"this machine lacks {', '.join(missing)}" if missing else ""


@cache
def has_amx() -> bool:
    """True if the processor has tiles and the system grants them; asked before `amx_here` first."""
    return not TARGET.missing_on(host_features())


@cache
def model() -> Model:
    """The model, installed once; on a processor with AMX it counts nothing."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "model.so"
        command = (*linker_command(), *_FLAGS, "-o", str(library), "-x", "c", str(_SOURCE))
        subprocess.run(command, check=True)
        return Model(ctypes.CDLL(str(library)))
