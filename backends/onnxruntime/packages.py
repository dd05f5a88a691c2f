"""The installed ONNX Runtime package, found without importing it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from optc.errors import UnavailableError

#: Both install the import package ``onnxruntime``; each overwrites files of the other.
CPU_PACKAGE, GPU_PACKAGE = "onnxruntime", "onnxruntime-gpu"
#: The first release whose operators engines use.
OLDEST = "1.31"
_WHERE = "onnxruntime backend"


def installed() -> dict[str, str]:
    """Version of each of the two packages that is installed."""
    found = {}
    for name in (CPU_PACKAGE, GPU_PACKAGE):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def problem(kind: str) -> str:
    """Empty if engines for a target of ``kind`` (``cpu``, ``cuda``) can run as far as packages go,
    else what is wrong and how to mend it."""
    found = installed()
    if len(found) > 1:
        wanted = GPU_PACKAGE if kind == "cuda" else CPU_PACKAGE
        return (
            f"{CPU_PACKAGE} and {GPU_PACKAGE} are both installed and overwrite each other's files: "
            f"pip uninstall -y {CPU_PACKAGE} {GPU_PACKAGE} && pip install {wanted}"
        )
    if kind == "cuda" and GPU_PACKAGE not in found:
        return (
            f"{GPU_PACKAGE} is not installed: pip uninstall -y {CPU_PACKAGE}; "
            "pip install 'optc[onnxruntime-gpu]'"
        )
    if not found:
        return f"{CPU_PACKAGE} is not installed: pip install 'optc[onnxruntime]'"
    name, have = next(iter(found.items()))
    return version_problem(name, have, OLDEST)


def version_problem(name: str, have: str, needed: str) -> str:
    """Empty if release ``have`` has the operators of release ``needed``."""
    if _release(have) >= _release(needed):
        return ""
    return f"{name} {have} is too old: pip install -U '{name}>={needed}'"


def import_onnxruntime(kind: str) -> ModuleType:
    """The module ``onnxruntime``, for targets of ``kind``.

    Raises:
        UnavailableError: It is not installed, too old, or there are two of it.
    """
    why = problem(kind)
    if why:
        raise UnavailableError(why, where=_WHERE)
    import onnxruntime

    return onnxruntime


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])
