"""The files of an engine in an artifact."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from optc.errors import ArtifactError
from optc.system.hardware.platforms import LINUX, MACOS, this_system

ENGINE_FILE = "engine.so"
#: TVM's runtime, in the order in which they must be opened.
LIBRARIES = ("libtvm_runtime.so", "libtvm_runtime_extra.so")
WEIGHTS_FILE = "weights.bin"


@dataclass(frozen=True)
class CodeFiles:
    """Names of an engine's files with code.

    Attributes:
        engine: Its library.
        libraries: TVM's runtime, in the order in which they must be opened.
    """

    engine: str
    libraries: tuple[str, ...]


_CODE = {
    LINUX: CodeFiles(ENGINE_FILE, LIBRARIES),
    MACOS: CodeFiles("engine.dylib", ("libtvm_runtime.dylib", "libtvm_runtime_extra.dylib")),
}


def code_files(system: str = "") -> CodeFiles:
    """Names of the files of an engine for a system; empty is this machine's."""
    return _CODE[system or this_system()]


def check_files(*paths: Path) -> None:
    """Check that all files are there.

    Raises:
        ArtifactError: One is missing.
    """
    for path in paths:
        if not path.is_file():
            raise ArtifactError(
                "the file is missing",
                where=path.name,
                hint="the artifact is incomplete: copy it again",
            )
