"""Measuring schedules, in a process of its own (`optc.child_job`), which loads the compiler."""

from __future__ import annotations

import json
import sys
from typing import Any

from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.tuning.schedule import Workload
from optc.child_job import answer
from optc.target import Target


def measure(asked: str) -> list[dict[str, Any]]:
    """Measure the request's workloads; entries ``{workload, schedule, gain}``."""
    request = json.loads(asked)
    # TVM imports torch if it can: two seconds and 200 MB that the compiler has no use for
    sys.modules["torch"] = None  # type: ignore[assignment]
    from optc.backends.tvm.tuning.kernel_timer import tune

    isa = isa_of(Target("", "cpu", tuple(request["features"])))
    workloads = [Workload(**entry) for entry in request["workloads"]]
    return tune(workloads, isa, request["threads"], request["seconds"])


if __name__ == "__main__":
    sys.exit(answer(sys.argv[1:], measure))
