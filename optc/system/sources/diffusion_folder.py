"""Folders of pipelines of diffusers, by the file that lists their parts."""

from __future__ import annotations

from pathlib import Path

from optc.system.foreign.file import is_file

#: Lists the parts of a pipeline by name: the library and the class of each.
MODEL_INDEX = "model_index.json"


def may_diffuse(path: Path) -> bool:
    """True if a folder is a pipeline of diffusers."""
    return is_file(path / MODEL_INDEX)
