"""Facts about this machine (for the report) and versions of packages (for the manifest)."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import cpu_name, host_features, usable_threads

#: Packages whose version can change what a compile writes.
_PACKAGES = (
    "optc",
    "apache-tvm",
    "apache-tvm-ffi",
    "numpy",
    "onnx",
    "onnx-ir",
    "onnxruntime",
    "onnxscript",
    "tokenizers",
    "torch",
    "transformers",
)


def package_versions() -> dict[str, str]:
    """Versions of the installed packages that take part in a compile."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine_facts() -> dict[str, Any]:
    """Processor, usable threads, CUDA devices, memory and system of this machine."""
    return {
        "cpu": cpu_name(),
        "features": sorted(host_features()),
        "threads": usable_threads(),
        "sm": list(this_machine().sm),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
