"""What an engine's build writes into the manifest for its load (``EngineEntry.data``), checked."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from optc.artifact.files import EngineFiles
from optc.artifact.jsonio import Fields
from optc.backend import StoredTensor
from optc.backends.tvm.engine_files import ENGINE_FILE, WEIGHTS_FILE
from optc.backends.tvm.program import Tensor
from optc.backends.tvm.runtime_libs import LIBRARIES
from optc.backends.tvm.weights.weights_file import ALIGNMENT, Placed, tensor_bytes
from optc.foreign.typed_json import MAX_INT
from optc.roofline.costs import StepCosts

_WHERE = "tvm engine: data"


@dataclass(frozen=True)
class EngineData:
    """What `load` needs beside the spec.

    Attributes:
        shared: Folder of the weights that are not `Placed.own`, relative to the engine's; of a CPU
            engine its libraries too.
        ffi: Release of tvm_ffi that it was built with.
        weights: Where each tensor lies in the file, in the order of the step's arguments.
    """

    shared: str
    ffi: str
    weights: tuple[Placed, ...]

    def check_weights(self, files: EngineFiles) -> None:
        """Check that the manifest lists a file of weights that is as long as they need.

        Raises:
            ArtifactError: It does not, or it is not.
        """
        for own in sorted({False, *(placed.own for placed in self.weights)}):
            found = files.entry(WEIGHTS_FILE, "." if own else self.shared)
            needed = max((placed.end for placed in self.weights if placed.own == own), default=0)
            if needed > found.bytes:
                raise files.error(
                    f"its weights need {needed} bytes, {found.path!r} has {found.bytes}"
                )


@dataclass(frozen=True)
class CpuEngineData(EngineData):
    """Of a CPU engine.

    Attributes:
        features: CPU features that the code uses.
    """

    features: tuple[str, ...]

    def check_files(self, files: EngineFiles) -> None:
        """Check that the manifest lists every file that a load opens.

        Raises:
            ArtifactError: It does not, or the file of the weights is too short.
        """
        files.entry(ENGINE_FILE)
        for name in LIBRARIES:
            files.entry(name, self.shared)
        self.check_weights(files)


def read_data(data: Mapping[str, Any]) -> CpuEngineData:
    """The data that a build for a CPU wrote.

    Raises:
        ArtifactError: As `read_common`.
    """
    f = Fields(data, _WHERE)
    return CpuEngineData(**read_common(f), features=f.each("features", str))


def read_common(f: Fields) -> dict[str, Any]:
    """The values of `EngineData`.

    Raises:
        ArtifactError: A key is missing, of another type or out of range, or weights overlap.
    """
    if "costs" in f.values:
        StepCosts.from_json(f.get("costs", dict))
    shared = f.get("shared", str) if "shared" in f.values else "."
    if posixpath.normpath(shared) != shared:
        raise f.error(f"the key 'shared' is {shared[:80]!r}, which is no path of a folder")
    weights = tuple(_placed(item) for item in f.children("weights"))
    _check_apart(f, weights)
    return {"shared": shared, "ffi": f.get("ffi", str), "weights": weights}


def read_weights(data: Mapping[str, Any]) -> tuple[Placed, ...]:
    """The places of an engine's tensors, whatever it runs on; raises as `read_common`."""
    weights: tuple[Placed, ...] = read_common(Fields(data, _WHERE))["weights"]
    return weights


def stored_tensors(data: Mapping[str, Any], files: EngineFiles) -> list[StoredTensor]:
    """Where the packed tensors lie; raises as `read_common`."""
    found = read_common(Fields(data, _WHERE))
    path = files.path(WEIGHTS_FILE, found["shared"])
    weights: tuple[Placed, ...] = found["weights"]
    return [
        StoredTensor(
            placed.tensor.name,
            placed.tensor.dtype,
            tuple(int(d) for d in placed.tensor.shape),
            path,
            placed.offset,
            tensor_bytes(placed.tensor),
        )
        for placed in weights
    ]


def _placed(f: Fields) -> Placed:
    name, dtype = f.get("name", str), f.get("dtype", str)
    try:
        kind = np.dtype(dtype).kind
    except TypeError as error:
        raise f.error(f"{dtype[:80]!r} is no data type") from error
    if kind not in "iuf":
        raise f.error(f"weights of {dtype[:80]!r}")
    tensor = Tensor(name, dtype, f.counts("shape", 1))
    offset = f.count("offset", 0, MAX_INT)
    if offset % ALIGNMENT:
        raise f.error(f"the offset {offset} is no multiple of {ALIGNMENT}")
    return Placed(tensor, offset, bool(f.optional("own", bool)))


def _check_apart(f: Fields, weights: Sequence[Placed]) -> None:
    if len({placed.tensor.name for placed in weights}) != len(weights):
        raise f.error("two weights have one name")
    for one, next_one in pairwise(sorted(weights, key=lambda placed: (placed.own, placed.offset))):
        if one.own == next_one.own and one.end > next_one.offset:
            raise f.error(f"{one.tensor.name!r} overlaps {next_one.tensor.name!r}")
