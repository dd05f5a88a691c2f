"""The abilities of this machine: the CPU features and CUDA devices that engines are chosen by."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

from optc.system.hardware.platforms import LINUX, SYSTEM_NAMES, this_system
from optc.system.hardware.target import (
    Target,
    host_features,
    lacking,
    processor_of,
    tiles_withheld,
)

_DRIVER = "libcuda.so.1"
#: Attributes of the driver's API: compute capability, major and minor.
_MAJOR, _MINOR = 75, 76


@dataclass(frozen=True)
class Machine:
    """A machine, as far as engines need it.

    Attributes:
        features: CPU features (Linux names).
        sm: Compute capability of each CUDA device, in the driver's order: 90 is sm_90.
        no_cuda: Why there is no device in ``sm``; empty if there are some.
        withheld: Why the system withholds the tiles of AMX that the CPU has; empty if it does not.
        system: The system, one of `optc.system.hardware.platforms`.
    """

    features: frozenset[str]
    sm: tuple[int, ...] = ()
    no_cuda: str = "this machine has no CUDA device"
    withheld: str = ""
    system: str = LINUX

    def misfit(self, target: Target) -> str:
        """Empty if what was compiled for ``target`` runs here, else the reason, one sentence.

        Code for an SM runs on devices of its major version whose minor version is not lower.
        """
        if target.kind == "cuda":
            return self._cuda_misfit(target)
        if target.system != self.system:
            return f"it needs {SYSTEM_NAMES[target.system]}, this is {SYSTEM_NAMES[self.system]}"
        own = processor_of(self.features)
        if own and target.processor and own != target.processor:
            return f"it needs a processor of {target.processor}, this one is of {own}"
        missing = target.missing_on(self.features)
        if not missing:
            return ""
        return f"it needs {', '.join(missing)}, {lacking(missing, self.withheld)}"

    def _cuda_misfit(self, target: Target) -> str:
        if not self.sm:
            return f"it needs a CUDA device: {self.no_cuda}"
        pairs = ((built, device) for built in target.sm for device in self.sm)
        if any(built // 10 == device // 10 and built <= device for built, device in pairs):
            return ""
        present = ", ".join(f"sm_{device}" for device in self.sm)
        return f"it was compiled for {target.arch}, the CUDA devices here are {present}"


@cache
def this_machine() -> Machine:
    """The machine that this process runs on."""
    sm, reason = _cuda_devices()
    return Machine(host_features(), sm, reason, tiles_withheld(), this_system())


def _cuda_devices() -> tuple[tuple[int, ...], str]:
    """Compute capabilities of the devices that the driver lists, or why there are none."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return (), f"no NVIDIA driver is installed ({_DRIVER} was not found)"
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status or not count.value:
        return (), f"the NVIDIA driver offers no device (cuInit: error {status})"
    return tuple(_capability(driver, index) for index in range(count.value)), ""


def _capability(driver: ctypes.CDLL, index: int) -> int:
    device, major, minor = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    driver.cuDeviceGet(ctypes.byref(device), index)
    driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    return 10 * major.value + minor.value
