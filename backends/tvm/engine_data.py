"""The part of the manifest that a build writes for its load (``EngineEntry.data``)."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from optc.artifact.files import EngineFiles
from optc.backend import StoredTensor
from optc.backends.tvm.engine_files import WEIGHTS_FILE, code_files
from optc.backends.tvm.weights.weights_file import Placed
from optc.proof.roofline.costs import StepCosts
from optc.system.foreign.typed_json import typed

_WHERE = "tvm engine: data"


class EngineData(Struct, frozen=True, kw_only=True):
    """Data that a load needs beside the spec, on any device.

    Attributes:
        shared: Folder of the weights that are not `Placed.own`, relative to the engine's; of a CPU
            engine its libraries too.
        ffi: Release of tvm_ffi that it was built with.
        weights: Where each tensor lies in the file, in the order of the step's arguments.
        costs: What a step must read and compute; None where the build did not state it.
    """

    shared: str = "."
    ffi: str
    weights: tuple[Placed, ...]
    costs: StepCosts | None = None

    def __post_init__(self) -> None:
        if posixpath.normpath(self.shared) != self.shared:
            raise ValueError(f"'shared' is {self.shared[:80]!r}, which is no path of a folder")
        _check_apart(self.weights)

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


class CpuEngineData(EngineData, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a CPU engine.

    Attributes:
        features: CPU features that the code uses.
        own_libraries: Its libraries lie in its own folder, as those of the engine whose weights it
            reads are for another platform.
    """

    features: tuple[str, ...]
    own_libraries: bool = False

    @property
    def libraries(self) -> str:
        """Folder of its libraries, relative to the engine's."""
        return "." if self.own_libraries else self.shared

    def check_files(self, files: EngineFiles, system: str) -> None:
        """Check that the manifest lists every file that a load opens.

        Args:
            files: Of the engine.
            system: That of its target.

        Raises:
            ArtifactError: It does not, or the file of the weights is too short.
        """
        code = code_files(system)
        files.entry(code.engine)
        for name in code.libraries:
            files.entry(name, self.libraries)
        self.check_weights(files)


def read_data(data: Mapping[str, Any]) -> CpuEngineData:
    """The data that a build for a CPU wrote.

    Raises:
        ArtifactError: A key is missing, unknown, of another type or out of range, or weights
            overlap.
    """
    return typed(data, CpuEngineData, _WHERE)


def read_common(data: Mapping[str, Any]) -> EngineData:
    """The data that engines have, whatever they run on; raises as `read_data`."""
    return typed(data, EngineData, _WHERE)


def stored_tensors(data: Mapping[str, Any], files: EngineFiles) -> list[StoredTensor]:
    """The places of the packed tensors; raises as `read_data`."""
    found = read_common(data)
    path = files.path(WEIGHTS_FILE, found.shared)
    return [
        StoredTensor(one.name, one.dtype, one.shape, path, one.offset, one.end - one.offset)
        for one in found.weights
    ]


def _check_apart(weights: Sequence[Placed]) -> None:
    if len({placed.name for placed in weights}) != len(weights):
        raise ValueError("two weights have one name")
    for one, next_one in pairwise(sorted(weights, key=lambda placed: (placed.own, placed.offset))):
        if one.own == next_one.own and one.end > next_one.offset:
            raise ValueError(f"{one.name[:80]!r} overlaps {next_one.name[:80]!r}")
