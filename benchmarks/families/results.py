"""The survey's result file: one entry a type, written as it comes."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any


class Results:
    """Entries by type in a JSON file.

    Args:
        path: The file; it may not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def content(self) -> dict[str, Any]:
        """All that is known."""
        if self._path.exists():
            content: dict[str, Any] = json.loads(self._path.read_text())
            return content
        return {"transformers": version("transformers"), "types": {}}

    def get(self, kind: str) -> dict[str, Any] | None:
        """The entry of a type, if there is one."""
        entry: dict[str, Any] | None = self.content()["types"].get(kind)
        return entry

    def put(self, kind: str, found: dict[str, Any]) -> None:
        """Write an entry; the file is read again, for another part may be measured meanwhile."""
        content = self.content()
        content["transformers"] = version("transformers")
        content["types"] = dict(sorted({**content["types"], kind: found}.items()))
        self._path.write_text(json.dumps(content, indent=1) + "\n")

    def summary(self) -> str:
        """The number of types that hold each stage."""
        counts: dict[str, int] = {}
        for entry in self.content()["types"].values():
            for stage in entry["stages"]:
                counts[stage] = counts.get(stage, 0) + 1
        return ", ".join(f"{stage} {count}" for stage, count in counts.items())
