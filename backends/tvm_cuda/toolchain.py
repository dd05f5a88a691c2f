"""The compiler of device code: nvcc, else NVRTC. Neither needs a GPU."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from optc.errors import UnavailableError

#: Compiles CUDA C++ for a compute capability (90 is sm_90) to a cubin.
DeviceCompiler = Callable[[str, int], bytes]

#: A product and a sum are one operation only where the source says so: all kernels that compute a
#: row must give it the same bits.
_OPTIONS = ("-std=c++17", "--fmad=false")
#: Major versions of NVRTC in ``nvidia-cuda-nvrtc``, newest first.
_NVRTC = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


def device_compiler() -> DeviceCompiler:
    """nvcc on the PATH, else NVRTC.

    Raises:
        UnavailableError: There is neither; says how to get one.
    """
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        path = nvcc
        return lambda source, sm: _with_nvcc(path, source, sm)
    library = _find_nvrtc()
    if library is not None:
        found = library
        return lambda source, sm: _with_nvrtc(found, source, sm)
    raise UnavailableError(
        "no compiler for CUDA: neither nvcc on the PATH nor NVRTC",
        where="tvm backend",
        hint="pip install 'optc[cuda]', or install the CUDA toolkit",
    )


def _with_nvcc(nvcc: str, source: str, sm: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        code, image = Path(folder, "kernels.cu"), Path(folder, "kernels.cubin")
        code.write_text(source)
        command = [nvcc, "--cubin", f"-arch=sm_{sm}", *_OPTIONS, "-o", str(image), str(code)]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise _refused("nvcc", sm, done.stdout + done.stderr)
        return image.read_bytes()


def _find_nvrtc() -> ctypes.CDLL | None:
    """NVRTC from the wheel ``nvidia-cuda-nvrtc``, else the system's."""
    folders = []
    spec = importlib.util.find_spec("nvidia")
    for location in spec.submodule_search_locations or [] if spec else []:
        folders += [Path(location, name, "lib") for name in ("cu13", "cuda_nvrtc")]
    for candidate in [str(f / n) for f in folders for n in _NVRTC if (f / n).exists()] + [*_NVRTC]:
        try:
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    return None


def _with_nvrtc(nvrtc: ctypes.CDLL, source: str, sm: int) -> bytes:
    """Raises:
    UnavailableError: NVRTC refuses the source or the architecture.
    """
    program = ctypes.c_void_p()
    _check(
        nvrtc,
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"k.cu", 0, None, None),
    )
    try:
        options = [o.encode() for o in (f"--gpu-architecture=sm_{sm}", *_OPTIONS)]
        array = (ctypes.c_char_p * len(options))(*options)
        if nvrtc.nvrtcCompileProgram(program, len(options), array):
            raise _refused("NVRTC", sm, _bytes_of(nvrtc, program, "ProgramLog").decode())
        return _bytes_of(nvrtc, program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes_of(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _check(nvrtc: ctypes.CDLL, status: int) -> None:
    if status:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        said = nvrtc.nvrtcGetErrorString(status).decode()
        raise UnavailableError(f"NVRTC failed: {said}", where="tvm backend")


def _refused(compiler: str, sm: int, output: str) -> UnavailableError:
    lines = [line.strip() for line in output.strip("\0\n ").splitlines() if "error" in line]
    said = " | ".join(lines[:6]) or output.strip()[-300:]
    return UnavailableError(
        f"{compiler} cannot compile the kernels for sm_{sm}: {said}",
        where="tvm backend",
        hint="a newer CUDA toolkit knows newer architectures; otherwise please report this",
    )
