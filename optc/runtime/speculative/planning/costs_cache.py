"""Measurements made once on this machine for an artifact, kept for later runs.

Step times, and what drafts cost, depend on the artifact and the machine and on nothing else. They
are kept in ``$OPTC_CACHE`` or ``$XDG_CACHE_HOME/optc`` (``~/.cache/optc``), one JSON file for each
kind of measurement, artifact, processor and number of threads. Anything there can be deleted.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from optc.system.cache_folder import cache_folder, keep_file
from optc.system.hardware.target import cpu_name, host_features
from optc.system.safe_json import parse_json


class CostsCache:
    """Measurements by kind, artifact and threads; those of other machines are never found.

    Args:
        folder: Where they are kept; None is this user's cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = cache_folder() if folder is None else folder
        self._machine = {"cpu": cpu_name(), "features": sorted(host_features())}

    def read(self, kind: str, digest: str, threads: int) -> dict[str, Any] | None:
        """The value last given to `write` for the same; None if there is nothing, or nothing whole.

        Args:
            kind: Which measurement, with a version: ``step-times.v1``.
            digest: Of the artifact.
            threads: Of the engine.
        """
        try:
            entry = parse_json(self._path(kind, digest, threads).read_bytes())
            value = entry["value"] if entry["key"] == self._key(kind, digest, threads) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return value if isinstance(value, dict) else None

    def write(self, kind: str, digest: str, threads: int, value: dict[str, Any]) -> bool:
        """Keep a JSON object; False if the folder cannot be written, which only costs time."""
        path = self._path(kind, digest, threads)
        entry = {"key": self._key(kind, digest, threads), "value": value}
        return keep_file(path, json.dumps(entry, allow_nan=False).encode())

    def _key(self, kind: str, digest: str, threads: int) -> dict[str, Any]:
        return {"kind": kind, "digest": digest, "threads": threads, **self._machine}

    def _path(self, kind: str, digest: str, threads: int) -> Path:
        key = json.dumps(self._key(kind, digest, threads), sort_keys=True)
        return self.folder / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
