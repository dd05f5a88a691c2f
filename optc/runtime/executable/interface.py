"""The interfaces of engines: the ragged step of a decoder, or tensors in and tensors out."""

from __future__ import annotations

from typing import Literal

from optc.runtime.executable.executable import StepInterface
from optc.runtime.executable.tensors_interface import TensorsInterface

#: In a manifest ``type`` tells which it is.
Interface = StepInterface | TensorsInterface

#: By the ``type`` of each.
INTERFACES: dict[Literal["step", "tensors"], type[Interface]] = {
    "step": StepInterface,
    "tensors": TensorsInterface,
}


def type_of(interface: Interface) -> Literal["step", "tensors"]:
    """The ``type`` of an interface in a manifest."""
    return next(name for name, kind in INTERFACES.items() if isinstance(interface, kind))
