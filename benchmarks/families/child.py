"""The survey's child process: one type, so that a crash, a hang or greed for memory is its own."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.families.stages import prove
from optc.child_job import answer


def work(request: str) -> dict[str, Any]:
    """Prove what ``request`` asks for; what is known so far is kept in a file of its own."""
    asked = json.loads(request)
    kept = Path(asked["kept"])
    torch.set_num_threads(1)

    def keep(found: dict[str, Any]) -> None:
        kept.write_text(json.dumps(found))

    with tempfile.TemporaryDirectory(prefix="optc-families-") as folder:
        prove(asked["type"], asked["last"], Path(folder), keep)
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


if __name__ == "__main__":
    sys.exit(answer(sys.argv[1:], work))
