"""TVM's runtime with its CUDA part, opened at load. Needs the driver and CUDA's runtime library."""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from optc.backends.tvm.runtime_libs import check_ffi_version, import_ffi, open_runtime
from optc.backends.tvm_cuda.engine_data import RUNTIME_LIBRARY
from optc.errors import ArtifactError, UnavailableError
from optc.system.hardware.machine import this_machine

#: What it needs besides the driver.
_CUDART = "libcudart.so.13"


def start_runtime(folder: Path, ffi_version: str) -> ModuleType:
    """Open the runtime's libraries in ``folder``; returns ``tvm_ffi``.

    Raises:
        UnavailableError: No driver or device, no CUDA runtime library, or tvm_ffi is of another
            release.
        ArtifactError: A library of the artifact cannot be opened.
    """
    machine = this_machine()
    if not machine.sm:
        raise UnavailableError(
            f"the engine needs a CUDA device: {machine.no_cuda}",
            where="tvm engine",
            hint="load it on a machine with an NVIDIA GPU and driver, or compile for this CPU",
        )
    check_ffi_version(ffi_version)
    ffi = import_ffi()
    open_runtime(folder)
    _open_cuda(folder)
    return ffi


@cache
def _open_cuda(folder: Path) -> None:
    """Open the CUDA part unless this process has it already.

    A process holds one runtime, as in `optc.backends.tvm.runtime_libs.open_runtime`.
    """
    import tvm_ffi

    if tvm_ffi.get_global_func("ffi.Module.load_from_bytes.cuda", True) is not None:
        return
    open_cudart()
    try:
        ctypes.CDLL(str(folder / RUNTIME_LIBRARY), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ArtifactError(
            f"cannot open the runtime library: {error}",
            where=RUNTIME_LIBRARY,
            hint="compile the artifact again",
        ) from error


@cache
def open_cudart() -> Any:
    """CUDA's runtime library, as `ctypes` opens it: the wheel's, else the system's.

    Raises:
        UnavailableError: There is none.
    """
    spec = importlib.util.find_spec("nvidia")
    locations = (spec.submodule_search_locations or []) if spec else []
    wheels = [Path(location, "cu13", "lib", _CUDART) for location in locations]
    for candidate in [*(str(path) for path in wheels if path.is_file()), _CUDART]:
        try:
            return ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    raise UnavailableError(
        f"CUDA's runtime library {_CUDART} was not found",
        where="tvm engine",
        hint="pip install 'nvidia-cuda-runtime>=13,<14', or install the CUDA 13 toolkit",
    )
