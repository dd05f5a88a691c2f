"""A backend of toys that take and give named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from optc.artifact.files import EngineFiles
from optc.artifact.manifest import EngineEntry
from optc.runtime.executable.tensors_interface import TensorsInterface, TensorSpec
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import Target

INTERFACE = TensorsInterface(
    inputs=(TensorSpec("x", "float32", (1,)),), outputs=(TensorSpec("y", "float32", (1,)),)
)


class Toy:
    """An engine of named tensors."""

    batch_invariant = True

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"y": np.asarray(inputs["x"])}

    def close(self) -> None:
        pass


class TensorToyBackend:
    """Loads toys, and remembers of which folders and for how many threads."""

    name, preference = "toy", 0
    weight_files: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.loaded: list[tuple[str, int]] = []

    def available(self) -> str:
        return ""

    def takes(self, target: Target) -> str:
        return ""

    def check(self, engine: EngineEntry, files: EngineFiles) -> None:
        pass

    def can_load(self, engine: EngineEntry, machine: Machine) -> str:
        return machine.misfit(engine.target)

    def features_used(self, engine: EngineEntry) -> tuple[str, ...]:
        return engine.target.features

    def build_tensors(self, *_: Any) -> Any:
        raise AssertionError

    def load_tensors(
        self, folder: Path, interface: TensorsInterface, data: dict[str, Any], threads: int
    ) -> Toy:
        self.loaded.append((folder.name, threads))
        return Toy()
