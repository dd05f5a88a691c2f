"""The distillation that a compile asks for, in a process of its own: it takes much memory, all of
which goes back to the system at its end (`optc.system.processes.child_job`)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from optc.compiling.training.distill import distill
from optc.system.options.training_options import DistillOptions
from optc.system.processes.child_job import answer


def work(request: str) -> dict[str, Any]:
    """Do what the request says.

    Args:
        request: JSON: ``model``, its folder; ``options``, of `DistillOptions`; ``progress``, a file
            that always says how far it is: stage, done and total.

    Returns:
        The training's figures and warnings.
    """
    asked = json.loads(request)
    told = Path(asked["progress"])

    def tell(stage: str, done: int, total: int) -> None:
        whole = told.with_suffix(".part")
        whole.write_text(json.dumps([stage, done, total]), encoding="utf-8")
        whole.replace(told)

    outcome = distill(asked["model"], DistillOptions(**asked["options"]), progress=tell)
    return {"figures": dict(outcome.figures), "warnings": list(outcome.warnings)}


if __name__ == "__main__":
    sys.exit(answer(sys.argv[1:], work))
