"""What an engine's build writes into the manifest for its load (``EngineEntry.data``), checked."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from optc.artifact.files import EngineFiles
from optc.artifact.jsonio import MAX_INT, Fields
from optc.backends.tvm.engine_files import ENGINE_FILE, RUNTIME_LIBRARY, WEIGHTS_FILE
from optc.backends.tvm.program import Tensor
from optc.backends.tvm.runtime_libs import LIBRARIES
from optc.backends.tvm.weights.weights_file import ALIGNMENT, Placed
from optc.errors import ArtifactError
from optc.roofline.costs import StepCosts

_WHERE = "tvm engine: data"


@dataclass(frozen=True)
class CudaData:
    """What only CUDA engines have.

    Attributes:
        images: File of each compute capability's device code.
        digest: Of its source.
        range_values: float32 values that ranges of attention take.
        kernel: Name of one of its kernels.
    """

    images: dict[int, str]
    digest: str
    range_values: int
    kernel: str


@dataclass(frozen=True)
class EngineData:
    """What `load` needs beside the spec.

    Attributes:
        shared: Folder of the weights, relative to the engine's; of a CPU engine its libraries too.
        features: CPU features that the code uses; none of CUDA engines.
        ffi: Release of tvm_ffi that it was built with.
        weights: Where each tensor lies in the file, in the order of the step's arguments.
        cuda: None of a CPU engine.
    """

    shared: str
    features: tuple[str, ...]
    ffi: str
    weights: tuple[Placed, ...]
    cuda: CudaData | None

    def check_files(self, files: EngineFiles) -> None:
        """Check that the manifest lists every file that a load opens, and that the file of the
        weights is as long as they need.

        Raises:
            ArtifactError: It does not, or it is not.
        """
        libraries: tuple[str, ...] = LIBRARIES
        beside = self.shared
        files.entry(ENGINE_FILE)
        if self.cuda is not None:
            libraries, beside = (*LIBRARIES, RUNTIME_LIBRARY, *self.cuda.images.values()), "."
        for name in libraries:
            files.entry(name, beside)
        found = files.entry(WEIGHTS_FILE, self.shared)
        needed = max((placed.end for placed in self.weights), default=0)
        if needed > found.bytes:
            raise files.error(f"its weights need {needed} bytes, {found.path!r} has {found.bytes}")


def read_data(data: Mapping[str, Any]) -> EngineData:
    """The data that a build wrote.

    Raises:
        ArtifactError: A key is missing, of another type or out of range, weights overlap, or an
            older optc compiled the engine.
    """
    f = Fields(data, _WHERE)
    cuda = _cuda(f.child("cuda")) if "cuda" in data else None
    if "costs" in data:
        StepCosts.from_json(f.get("costs", dict))
    shared = f.get("shared", str) if "shared" in data else "."
    if posixpath.normpath(shared) != shared:
        raise f.error(f"the key 'shared' is {shared[:80]!r}, which is no path of a folder")
    weights = tuple(_placed(item) for item in f.children("weights"))
    _check_apart(f, weights)
    return EngineData(
        shared=shared,
        features=() if cuda else f.each("features", str),
        ffi=f.get("ffi", str),
        weights=weights,
        cuda=cuda,
    )


def _cuda(f: Fields) -> CudaData:
    if "range_values" not in f.values:
        raise ArtifactError(
            "the engine's steps have other arguments: an older optc compiled it",
            where="tvm engine",
            hint="compile the artifact again",
        )
    images = f.texts("images")
    kernels = f.each("kernels", str)
    if not images or not all(name.isascii() and name.isdigit() for name in images) or not kernels:
        raise f.error("it names no device code")
    return CudaData(
        {int(sm): name for sm, name in images.items()},
        f.get("digest", str),
        f.count("range_values", 1),
        kernels[0],
    )


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
    return Placed(tensor, offset)


def _check_apart(f: Fields, weights: Sequence[Placed]) -> None:
    if len({placed.tensor.name for placed in weights}) != len(weights):
        raise f.error("two weights have one name")
    for one, next_one in pairwise(sorted(weights, key=lambda placed: placed.offset)):
        if one.end > next_one.offset:
            raise f.error(f"{one.tensor.name!r} overlaps {next_one.tensor.name!r}")
