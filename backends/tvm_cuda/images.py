"""Device code in an artifact: a cubin for each architecture beside the engine's library.

TVM would put CUDA C++ into the library and ask for a compiler at load. Instead the library holds a
key, and at load the key's cubin is what "compiling" it gives. Both sides of that are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from optc.errors import ArtifactError, UnavailableError

#: TVM's names of the functions that edit emitted source, make a module of it, and compile it.
EDIT, CREATE = "tvm_callback_cuda_postproc", "ffi.Module.create.cuda"
COMPILE = "tvm_callback_cuda_compile"
#: Before the digest of the device code.
_PREFIX = "// optc images "
#: Cubins by the digest of their source, of all engines that this process has loaded.
_images: dict[str, bytes] = {}


def image_file(sm: int) -> str:
    """Name of the cubin for a compute capability."""
    return f"kernels.sm_{sm}.cubin"


def key_of(digest: str) -> str:
    """The key that stands in an engine's library instead of device code."""
    return f"{_PREFIX}{digest}\n"


def best_image(built: Sequence[int], device: int) -> int:
    """The compute capability of ``built`` whose code runs fastest on ``device``: code runs on
    devices of its own major version and at least its minor one.

    Raises:
        UnavailableError: None runs there.
    """
    fitting = [sm for sm in built if sm // 10 == device // 10 and sm <= device]
    if not fitting:
        have = ", ".join(f"sm_{sm}" for sm in built)
        raise UnavailableError(
            f"the engine has code for {have}, and this GPU is sm_{device}",
            where="tvm engine",
            hint=f"compile the artifact with --backend tvm-cuda:sm_{device}",
        )
    return max(fitting)


def register_image(digest: str, path: Path) -> None:
    """Have the runtime find the cubin of device code with this digest.

    Raises:
        ArtifactError: The file is missing.
    """
    import tvm_ffi

    if not path.is_file():
        raise ArtifactError(
            "the file is missing",
            where=path.name,
            hint="the artifact is incomplete: copy it again",
        )
    _images[digest] = path.read_bytes()
    tvm_ffi.register_global_func(COMPILE, _find, override=True)


def _find(code: str) -> bytes:
    digest = code.strip().removeprefix(_PREFIX.strip()).strip()
    if digest not in _images:
        raise ArtifactError("no image of the engine's device code", where="tvm engine")
    return _images[digest]
