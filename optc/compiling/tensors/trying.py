"""`random_samples`: the sizes that a model takes are tried in a process of its own.

An engine may crash at inputs that it does not take, as ONNX Runtime does where a graph divides
integers by a dimension. Such a crash is one more size that is not taken.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from optc import registry
from optc.artifact.artifact import Artifact
from optc.backend import TensorsBuilder
from optc.compiling.tensors.random_samples import (
    Sizes,
    Tensors,
    sample_of,
    sizes_taken,
    smallest,
)
from optc.errors import EngineError, OptcError
from optc.runtime.executable.tensors_interface import TensorsInterface
from optc.runtime.tensors.engine import interface_of
from optc.system.hardware.target import usable_threads
from optc.system.processes.child_job import ChildJob, answer
from optc.system.scratch import Scratch

_JOB = ChildJob(
    "optc.compiling.tensors.trying",
    what="the process that tries random inputs",
    where="inputs",
    hint="--inputs FILE.npz gives inputs that the model takes",
    timeout_s=300,
)


@dataclass(frozen=True)
class BuiltTensors:
    """An engine's files.

    Attributes:
        folder: Where they lie.
        backend: That loads them.
        interface: Of the engine.
        data: What the backend keeps in the manifest.
    """

    folder: Path
    backend: str
    interface: TensorsInterface
    data: dict[str, Any]

    @staticmethod
    def of(artifact: Path, name: str) -> BuiltTensors:
        """Those of an artifact's engine of that name."""
        opened = Artifact.open(artifact, "size")
        entry = next(one for one in opened.manifest.engines if one.name == name)
        folder = opened.engine_folder(entry)
        return BuiltTensors(folder, entry.backend, interface_of(entry), entry.data)


def random_samples(built: BuiltTensors) -> tuple[Tensors, ...]:
    """Samples of seeded noise: one at least, more of models with dynamic dimensions. They are of
    sizes that the engine takes, if it takes any that is tried (`sizes_taken`)."""
    found = _taken(built) or [smallest(built.interface)]
    return tuple(sample_of(built.interface, sizes) for sizes in found)


def _taken(built: BuiltTensors) -> list[Sizes]:
    crashed: list[Sizes] = []
    with Scratch("trial") as scratch:
        note = Path(scratch) / "tried"
        while True:
            request = {
                "folder": str(built.folder),
                "backend": built.backend,
                "interface": msgspec.to_builtins(built.interface),
                "data": built.data,
                "crashed": crashed,
                "note": str(note),
            }
            try:
                return [Sizes(*one) for one in _JOB.run(json.dumps(request))]
            except OptcError:
                if not note.exists():  # it could not even be loaded, which gates say better
                    return []
            crashed.append(Sizes(*json.loads(note.read_text())))
            note.unlink()


def find(request: str) -> list[Sizes]:
    """The sizes that the engine of a request takes. What is tried is noted before: if this process
    dies, its parent knows by what."""
    asked = json.loads(request)
    interface = msgspec.convert(asked["interface"], TensorsInterface)
    backend, note = registry.backend(asked["backend"]), Path(asked["note"])
    assert isinstance(backend, TensorsBuilder)
    place = Path(asked["folder"]), interface, asked["data"]
    engine = backend.load_tensors(*place, usable_threads())
    crashed = {Sizes(*one) for one in asked["crashed"]}

    def takes(sizes: Sizes) -> bool:
        if sizes in crashed:
            return False
        note.write_text(json.dumps(sizes))
        try:
            engine.run(sample_of(interface, sizes))
        except EngineError:
            return False
        return True

    return list(sizes_taken(interface, takes))


if __name__ == "__main__":
    sys.exit(answer(sys.argv[1:], find))
