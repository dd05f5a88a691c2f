"""Run the builder in a process of its own, within a time and a memory limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optc.backends.tensorrt.build_job import BuildJob
from optc.errors import OptcError
from optc.system.processes.child_job import ChildJob

#: The builder's process.
BUILDER = ChildJob(
    "optc.backends.tensorrt.child",
    "the builder's process",
    where="tensorrt backend",
    hint="building takes about four times the weights' size in memory;"
    " if there was enough, please report this model and recipe",
    timeout_s=3600.0,
)


def run_builder(request: BuildJob, *, max_bytes: int = 0) -> dict[str, Any]:
    """Build an engine; returns the builder's report.

    Args:
        request: What to build.
        max_bytes: Anonymous memory that the builder's process may take; 0 is no limit.

    Raises:
        UnsupportedError: TensorRT refuses the model.
        UnavailableError: TensorRT is missing or cannot build for the GPUs, or its process crashed,
            took too long or too much memory. No engine is left behind.
    """
    try:
        report: dict[str, Any] = BUILDER.run(request.to_json(), max_bytes)
    except OptcError:
        Path(request.engine).unlink(missing_ok=True)
        Path(request.table).unlink(missing_ok=True)
        raise
    return report
