"""TVM's two runtime libraries: found at compile time, copied into the artifact, opened at load."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from optc.backends.tvm.engine_files import code_files
from optc.backends.tvm.runtime_fetch import fetched_folder, lacking, libraries_for
from optc.errors import ArtifactError, UnavailableError
from optc.system.hardware.platforms import this_platform

FFI_PACKAGE = "apache-tvm-ffi"


def compiler_package() -> Path | None:
    """Folder of the installed ``tvm`` package, found without importing it; None if absent."""
    spec = importlib.util.find_spec("tvm")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def copy_libraries(folder: Path, *more: str, platform: str = "") -> tuple[str, ...]:
    """Copy the runtime libraries of the installed compiler and ``more`` into ``folder``; returns
    their names.

    Args:
        folder: Where they go.
        more: Others of the package.
        platform: What they are for (`optc.system.hardware.target.Target.platform`); empty is this
            machine.

    Raises:
        UnavailableError: The compiler is not installed, or its libraries for that platform have
            not been fetched.
    """
    if platform not in ("", this_platform()):
        return _copy_fetched(folder, platform)
    package = compiler_package()
    if package is None:
        raise UnavailableError(
            "apache-tvm is not installed", where="tvm backend", hint="pip install 'optc[compile]'"
        )
    names = (*code_files().libraries, *more)
    for name in names:
        shutil.copyfile(package / "lib" / name, folder / name)
    return names


def _copy_fetched(folder: Path, platform: str) -> tuple[str, ...]:
    reason = lacking(platform)
    if reason:
        raise UnavailableError(reason, where="tvm backend")
    names = libraries_for(platform)
    for name in names:
        shutil.copyfile(fetched_folder(platform) / name, folder / name)
    return names


def libraries_bytes() -> int:
    """Bytes of what `copy_libraries` copies; 0 where the compiler is not installed."""
    package = compiler_package()
    if package is None:
        return 0
    return sum((package / "lib" / name).stat().st_size for name in code_files().libraries)


def ffi_version() -> str:
    """Version of the installed FFI package, the run time's only dependency on TVM.

    Raises:
        UnavailableError: It is not installed.
    """
    try:
        return importlib.metadata.version(FFI_PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise UnavailableError(
            f"{FFI_PACKAGE} is not installed",
            where="tvm backend",
            hint=f"pip install {FFI_PACKAGE}",
        ) from error


def check_ffi_version(required: str) -> None:
    """Check that the installed FFI package is of the release that the engine was built with.

    Raises:
        UnavailableError: Another release, or none, is installed.
    """
    problem = ffi_mismatch(required)
    if problem:
        raise UnavailableError(
            problem, where="tvm engine", hint=f"pip install {FFI_PACKAGE}=={required}"
        )


def ffi_mismatch(required: str) -> str:
    """Empty if the installed FFI package is of the release ``required``, else what is there."""
    try:
        installed = ffi_version()
    except UnavailableError as error:
        return error.message
    if _release(installed) == _release(required):
        return ""
    needed = _release(required)
    fix = f"pip install '{FFI_PACKAGE}=={needed}.*'"
    return f"the engine needs {FFI_PACKAGE} {needed}, installed is {installed}: {fix}"


def _release(version: str) -> str:
    return ".".join(version.split(".")[:3])


@contextmanager
def _without_torch() -> Iterator[None]:
    """Keep ``import tvm_ffi`` from importing torch, which would take a second and 200 MB."""
    os.environ["TVM_FFI_DISABLE_TORCH_C_DLPACK"] = "1"
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes the import fail
    try:
        yield
    finally:
        del sys.modules["torch"]


def import_ffi() -> ModuleType:
    """The ``tvm_ffi`` package, imported without torch.

    Raises:
        UnavailableError: It is not installed.
    """
    ffi_version()
    with _without_torch():
        import tvm_ffi
    module: ModuleType = tvm_ffi
    return module


@cache
def open_runtime(folder: Path) -> None:
    """Open the artifact's runtime libraries, unless this process already has TVM's runtime.

    A process holds one runtime: the libraries register their functions globally, so that a
    second copy from another artifact would clash; the versions were checked to be equal.

    Raises:
        ArtifactError: A library is missing or cannot be opened.
    """
    if _runtime_is_open():
        return
    for name in code_files().libraries:
        try:
            ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise ArtifactError(
                f"cannot open the runtime library: {error}",
                where=name,
                hint="compile the artifact again",
            ) from error


def _runtime_is_open() -> bool:
    import tvm_ffi

    probe = tvm_ffi.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable", True)
    return probe is not None
