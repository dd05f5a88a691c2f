"""The part of the manifest that a build of a CUDA engine writes for its load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from optc.artifact.files import EngineFiles
from optc.backends.tvm.engine_data import EngineData
from optc.backends.tvm.engine_files import ENGINE_FILE, LIBRARIES
from optc.system.foreign.typed_json import Positive, typed

#: The CUDA part of TVM's runtime, beside `optc.backends.tvm.engine_files.LIBRARIES`.
RUNTIME_LIBRARY = "libtvm_runtime_cuda.so"
_Sm = Annotated[str, Meta(pattern=r"\A[0-9]{1,4}\Z")]


class DeviceCode(Struct, frozen=True, forbid_unknown_fields=True):
    """The code of an engine that runs on a device.

    Attributes:
        images: File of each compute capability's code.
        digest: Of its source.
        range_values: float32 values that ranges of attention take.
        kernels: Names of its kernels; at least one.
    """

    images: Annotated[dict[_Sm, str], Meta(min_length=1)]
    digest: str
    range_values: Positive
    kernels: Annotated[tuple[str, ...], Meta(min_length=1)]


class CudaEngineData(EngineData, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a CUDA engine, whose libraries are its own."""

    cuda: DeviceCode

    @property
    def images(self) -> dict[int, str]:
        """File of each compute capability's device code."""
        return {int(sm): name for sm, name in self.cuda.images.items()}

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
        ArtifactError: A key is missing, unknown, of another type or out of range, or weights
            overlap.
    """
    return typed(data, CudaEngineData, "tvm-cuda engine: data")
