"""Loading an engine: what can be checked without a GPU is checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optc.backends.tensorrt.engine_data import ENGINE_FILE, EngineData, read_data
from optc.backends.tensorrt.header import EngineHeader, check_header, read_header
from optc.backends.tensorrt.provider import RTX, installed_version
from optc.errors import UnavailableError
from optc.runtime.executable.executable import Executable, StepInterface
from optc.system.hardware.machine import Machine, this_machine
from optc.system.hardware.target import Target


def release_mismatch(requires: Mapping[str, str]) -> str:
    """Empty if the packages that an engine needs are installed in its release, else what is not."""
    for package, wanted in requires.items():
        installed = installed_version(package)
        if installed is None:
            return f"it needs {package} {wanted}, which is not installed"
        if installed.split(".")[:3] != wanted.split(".")[:3]:
            return f"it needs {package} {wanted}, installed is {installed}"
    return ""


def gpu_mismatch(target: Target, machine: Machine) -> str:
    """Empty if the first GPU of ``machine`` is of an architecture that ``target`` names.

    Engines hold kernels for just these: other than code of CUDA's compiler, one for sm_80 is not
    known to run on sm_86.
    """
    problem = machine.misfit(target)
    if problem or machine.sm[0] in target.sm:
        return problem
    return f"it was built for {target.arch}, the first CUDA device here is sm_{machine.sm[0]}"


def load_engine(folder: Path, spec: StepInterface, data: dict[str, Any]) -> Executable:
    """Load the engine in ``folder``.

    Args:
        folder: Where its files lie.
        spec: Its limits.
        data: What the build stated (``backend_data``).

    Raises:
        ArtifactError: The file is damaged or no engine.
        UnavailableError: Another release of TensorRT, no driver, or no GPU that it was built for.
    """
    path = folder / ENGINE_FILE
    found = read_data(data)
    problem = release_mismatch({found.package: found.version})
    if problem:
        raise UnavailableError(problem, where=str(path))
    header = read_header(path) if found.package == RTX else None
    check_device(header, found, this_machine(), str(path))
    from optc.backends.tensorrt.runtime.open import open_executable

    return open_executable(path, spec, found)


def check_device(
    header: EngineHeader | None, data: EngineData, machine: Machine, where: str
) -> None:
    """Check that the first GPU of ``machine`` is one that the engine was built for.

    Raises:
        UnavailableError: There is none, or another.
    """
    gpus = header.gpus if header else "the GPU of its machine"
    built = f"Engine for {gpus} ({_product(data)})"
    if not machine.sm:
        raise UnavailableError(
            f"{built} was built but cannot be loaded: no usable CUDA driver on this machine"
            f" ({machine.no_cuda})",
            where=where,
            hint="load it on a machine with such a GPU; what was checked at build time holds",
        )
    if header is not None:
        check_header(header, data.version, f"sm_{machine.sm[0]}", where)


def _product(data: EngineData) -> str:
    names = {RTX: "TensorRT-RTX", "tensorrt": "TensorRT"}
    release = ".".join(data.version.split(".")[:3])
    return f"{names[data.package]} {release}"
