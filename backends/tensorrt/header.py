"""The header of a TensorRT-RTX engine: what made it and which GPUs it is for.

The layout is not documented. It was found by building engines for one GPU after the other, and a
test does so again with the installed release. Full TensorRT's engines have another one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from optc.errors import ArtifactError, UnavailableError

#: Bytes that hold all of the header.
SIZE = 64
MAGIC = b"vtrt"
#: GPU architectures by their bit in the mask.
_BITS = {
    "sm_80": 0x02,
    "sm_86": 0x04,
    "sm_89": 0x08,
    "sm_120": 0x10,
    "sm_121": 0x20,
    "sm_75": 0x01,
}


@dataclass(frozen=True)
class EngineHeader:
    """The facts that an engine's header states.

    Attributes:
        version: Of the package that built it, four numbers.
        architectures: GPUs that it is for, ``sm_89``.
        bytes: Size of the whole engine.
    """

    version: tuple[int, int, int, int]
    architectures: tuple[str, ...]
    bytes: int

    @property
    def release(self) -> str:
        """The version without its build number, ``1.7.1``: what must agree with the runtime."""
        return ".".join(map(str, self.version[:3]))

    @property
    def gpus(self) -> str:
        """The architectures for messages: ``SM80+SM89``."""
        return "+".join(one.replace("_", "").upper() for one in self.architectures)


def parse_header(data: bytes, where: str) -> EngineHeader:
    """The header in the first bytes of an engine.

    Args:
        data: At least `SIZE` bytes.
        where: The file, for messages.

    Raises:
        ArtifactError: It is no TensorRT-RTX engine.
    """
    if len(data) < SIZE or data[:4] != MAGIC:
        raise ArtifactError(
            "the file is no TensorRT-RTX engine", where=where, hint="compile the model again"
        )
    size, *version, mask = struct.unpack_from("<Q4BxxxxI", data, 16)
    major, minor, patch, build = version
    found = sorted(
        (name for name, bit in _BITS.items() if mask & bit), key=lambda one: int(one[3:])
    )
    return EngineHeader((major, minor, patch, build), tuple(found), size)


def read_header(path: Path) -> EngineHeader:
    """The header of an engine's file.

    Raises:
        ArtifactError: It cannot be read, is no engine, or is not as long as it says.
    """
    try:
        with path.open("rb") as stream:
            header = parse_header(stream.read(SIZE), str(path))
        actual = path.stat().st_size
    except OSError as error:
        raise ArtifactError(
            f"the engine cannot be read: {error.strerror}", where=str(path)
        ) from error
    if header.bytes != actual:
        raise ArtifactError(
            f"the engine has {actual} bytes where its header says {header.bytes}",
            where=str(path),
            hint="copy the artifact again",
        )
    return header


def check_header(header: EngineHeader, runtime_version: str, architecture: str, where: str) -> None:
    """Check that a runtime and a GPU can take the engine, before anything is loaded.

    Args:
        header: The engine's.
        runtime_version: Of the installed package.
        architecture: Of the GPU; empty leaves that unchecked.
        where: The file, for messages.

    Raises:
        UnavailableError: The release differs, or the engine is for other GPUs.
    """
    if runtime_version.split(".")[:3] != header.release.split("."):
        raise UnavailableError(
            f"the engine was built by TensorRT-RTX {header.release}, installed is"
            f" {runtime_version}: the releases must be equal",
            where=where,
            hint=f"pip install tensorrt-rtx-cu13=={'.'.join(map(str, header.version))}"
            " or compile the model again",
        )
    if architecture and not runs_on(header.architectures, architecture):
        raise UnavailableError(
            f"the engine was built for {header.gpus}, the GPU here is"
            f" {architecture.replace('_', '').upper()}",
            where=where,
            hint=f"compile the model with --backend tensorrt:{architecture}",
        )


def runs_on(architectures: Sequence[str], architecture: str) -> bool:
    """True if an engine for ``architectures`` runs on a GPU of ``architecture``."""
    return architecture in architectures
