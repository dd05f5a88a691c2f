"""What a CUDA engine's build writes into the manifest for its load, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optc.artifact.files import EngineFiles
from optc.artifact.jsonio import Fields
from optc.backends.tvm.engine_data import EngineData, read_common
from optc.backends.tvm.engine_files import ENGINE_FILE
from optc.backends.tvm.runtime_libs import LIBRARIES
from optc.errors import ArtifactError

#: The CUDA part of TVM's runtime, beside `optc.backends.tvm.runtime_libs.LIBRARIES`.
RUNTIME_LIBRARY = "libtvm_runtime_cuda.so"


@dataclass(frozen=True)
class CudaEngineData(EngineData):
    """Of a CUDA engine, whose libraries are its own.

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

    @property
    def libraries(self) -> tuple[str, ...]:
        """All files that a load opens beside the engine's code and weights."""
        return (*self.images.values(), *LIBRARIES, RUNTIME_LIBRARY)

    def check_files(self, files: EngineFiles) -> None:
        """Check that the manifest lists every file that a load opens.

        Raises:
            ArtifactError: It does not, or the file of the weights is too short.
        """
        for name in (ENGINE_FILE, *self.libraries):
            files.entry(name)
        self.check_weights(files)


def read_data(data: Mapping[str, Any]) -> CudaEngineData:
    """The data that a build for CUDA wrote.

    Raises:
        ArtifactError: A key is missing, of another type or out of range, weights overlap, or
            another optc compiled the engine.
    """
    f = Fields(data, "tvm-cuda engine: data")
    return CudaEngineData(**read_common(f), **_cuda(f.child("cuda")))


def _cuda(f: Fields) -> dict[str, Any]:
    if "range_values" not in f.values:
        raise ArtifactError(
            "the engine's steps have other arguments: another optc compiled it",
            where="tvm-cuda engine",
            hint="compile the artifact again",
        )
    images = f.texts("images")
    kernels = f.each("kernels", str)
    if not images or not all(name.isascii() and name.isdigit() for name in images) or not kernels:
        raise f.error("it names no device code")
    return {
        "images": {int(sm): name for sm, name in images.items()},
        "digest": f.get("digest", str),
        "range_values": f.count("range_values", 1),
        "kernel": kernels[0],
    }
