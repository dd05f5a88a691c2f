"""The type of the argument ARTIFACT of commands: a path, or a name in the local store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


class ArtifactPath(click.Path):
    """A path that exists goes before a name; what is neither is taken for a path."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path that a text means (`optc.artifact.store.local.find_artifact`).

        Raises:
            NoArtifactError: There is nothing there, and the store has what was probably meant.
        """
        from optc.artifact.store.local import check_found, find_artifact

        found = find_artifact(str(super().convert(value, param, ctx)))
        check_found(found)
        return found


ARTIFACT = ArtifactPath()
