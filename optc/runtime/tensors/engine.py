"""`TensorEngine`: a loaded model that takes and gives named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from optc import registry
from optc.artifact.manifest import EngineEntry
from optc.backend import TensorsBuilder
from optc.errors import RequestError, UnsupportedError
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.executable.tensors_interface import TensorsInterface, TensorSpec
from optc.runtime.tensors.inputs import checked_inputs
from optc.system.closing import Closing

Array = npt.NDArray[Any]


class TensorEngine(Closing):
    """A model of named tensors; calls of several threads run side by side.

        engine = optc.load("artifacts/resnet-tensors-fp32")
        outputs = engine(images)            # by position, or by name: engine(x=images)
        outputs["logits"]

    Attributes:
        info: The engine's name, backend and target, and why others were not taken.
    """

    def __init__(
        self, executable: TensorsExecutable, interface: TensorsInterface, info: Mapping[str, Any]
    ) -> None:
        self._executable: TensorsExecutable | None = executable
        self._interface = interface
        self.info = info

    @property
    def interface(self) -> TensorsInterface:
        """Inputs, outputs, and bounds of dimensions that differ from call to call."""
        return self._interface

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names, types and dimensions of the inputs, in order."""
        return self._interface.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, types and dimensions of the outputs, in order."""
        return self._interface.outputs

    @property
    def batch_invariant(self) -> bool:
        """An output's row has the same bits whatever other rows are computed with it."""
        return self._executable is not None and self._executable.batch_invariant

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Array]:
        """Outputs by name for inputs by position or by name.

        Raises:
            RequestError: An input is missing, given twice, or of another type or shape.
        """
        names = [one.name for one in self.inputs]
        if len(args) > len(names):
            raise RequestError(
                f"{len(args)} inputs are given, and there are {len(names)}", where="inputs"
            )
        given = dict(zip(names, args, strict=False))
        if twice := given.keys() & kwargs.keys():
            raise RequestError(f"the input {min(twice)!r} is given twice", where="inputs")
        return self.run({**given, **kwargs})

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Outputs by name for inputs by name: arrays of NumPy, or of a library that speaks DLPack.

        Raises:
            RequestError: An input is missing, or of another type or shape, or the engine is closed.
        """
        if self._executable is None:
            raise RequestError("the engine is closed", where="inputs", hint="load it again")
        return self._executable.run(checked_inputs(inputs, self._interface, "inputs"))

    def close(self) -> None:
        """Free the engine."""
        if self._executable is not None:
            self._executable.close()
        self._executable = None

    def __repr__(self) -> str:
        """Names of inputs and outputs."""
        sides = [", ".join(one.name for one in side) for side in (self.inputs, self.outputs)]
        return f"<optc.TensorEngine {sides[0]} -> {sides[1]}>"


def open_folder(folder: Path, entry: EngineEntry, threads: int) -> TensorsExecutable:
    """The loaded engine whose files lie in ``folder``; raises as `load_tensors`."""
    interface = interface_of(entry)
    backend = registry.backend(entry.backend)
    if not isinstance(backend, TensorsBuilder):
        raise UnsupportedError(
            f"the backend {entry.backend} runs no models of named tensors",
            where=f"engine {entry.name}",
        )
    return backend.load_tensors(folder, interface, entry.data, threads)


def interface_of(entry: EngineEntry) -> TensorsInterface:
    """The interface of an engine of named tensors.

    Raises:
        UnsupportedError: It runs steps of a decoder.
    """
    if isinstance(entry.interface, TensorsInterface):
        return entry.interface
    raise UnsupportedError(
        "runs steps of a decoder, not named tensors",
        where=f"engine {entry.name!r}",
        hint="load it with optc.load",
    )
