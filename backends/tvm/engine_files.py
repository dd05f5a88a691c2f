"""The files of an engine in an artifact."""

from __future__ import annotations

from pathlib import Path

from optc.errors import ArtifactError

ENGINE_FILE = "engine.so"
WEIGHTS_FILE = "weights.bin"


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
