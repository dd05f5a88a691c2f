"""The device that the float32 reference runs on. No PyTorch is imported here before it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from optc.errors import UnavailableError

#: Names of the devices.
CPU, CUDA = "cpu", "cuda"
_device: ContextVar[str] = ContextVar("device", default=CPU)


def device_now() -> str:
    """The device that `running_on` names; the CPU outside of it."""
    return _device.get()


@contextmanager
def running_on(device: str) -> Iterator[None]:
    """Let references that are opened in the block run on ``device``: for passes, which are told
    nothing of it."""
    token = _device.set(device)
    try:
        yield
    finally:
        _device.reset(token)


def check_device(device: str, instead: str) -> None:
    """Check that a device is there.

    Args:
        device: ``cpu`` or ``cuda``.
        instead: The end of the hint: what to do on the CPU.

    Raises:
        UnavailableError: A GPU is asked for, and PyTorch finds none.
    """
    if device == CPU:
        return
    import torch

    if not torch.cuda.is_available():
        build = "" if torch.version.cuda else f": PyTorch {torch.__version__} is built without CUDA"
        raise UnavailableError(
            f"PyTorch finds no GPU{build}",
            where="--device",
            hint=f"leave --device out to {instead} on the CPU",
        )
