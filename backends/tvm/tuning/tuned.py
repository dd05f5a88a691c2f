"""From a program to one with schedules: look them up, measure what is missing, note what is used.

The schedule becomes a part of the kernel's configuration, so that equal ones share a kernel. A
kernel that no database knows keeps the default, and its configuration as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from optc.backend import BuildOptions
from optc.backends.tvm.isa import Isa
from optc.backends.tvm.program import Call, Program
from optc.backends.tvm.tuning.schedule import Workload, parse_schedule, workload_of
from optc.backends.tvm.tuning.schedule_files import (
    Schedules,
    packaged_schedules,
    read_schedules,
    write_schedules,
)
from optc.cache_folder import cache_folder
from optc.child_job import ChildJob
from optc.errors import InputError
from optc.target import host_features, usable_threads

#: Seconds that measuring the shapes of one engine may take, compilation of candidates included.
TUNE_S = 60.0
#: The process that measures; it may take ten minutes more.
MEASURING = ChildJob(
    "optc.backends.tvm.tuning.tuning_child",
    "the process that measures schedules",
    where="tvm backend",
    hint="compile without --tune; please report this",
    timeout_s=TUNE_S + 600.0,
)

#: Measures workloads: gives entries ``{workload, schedule, gain}`` of those that it got to.
Measure = Callable[[Sequence[Workload], Isa], list[dict[str, Any]]]


def with_schedules(program: Program, known: Schedules, isa: Isa) -> tuple[Program, Schedules]:
    """The program with the schedules that are known, and those of them that it uses."""
    used = {}

    def scheduled(call: Call) -> Call:
        workload = workload_of(call, isa)
        if workload is None or workload not in known:
            return call
        used[workload] = known[workload]
        return replace(call, config={**call.config, "schedule": asdict(known[workload])})

    functions = tuple(
        replace(f, calls=tuple(scheduled(call) for call in f.calls)) for f in program.functions
    )
    return replace(program, functions=functions), used


def known_schedules(
    program: Program, isa: Isa, options: BuildOptions, measure: Measure | None = None
) -> tuple[Schedules, dict[str, Any]]:
    """The package's schedules and the user's, which win; measured first if so asked.

    Returns:
        The schedules, and figures for the report: of every workload that was measured the gain,
        and of how many there was no time for.

    Raises:
        InputError: The user's file is missing, malformed or cannot be written, or the target
            does not run here, so that nothing can be measured.
        UnavailableError: The measuring process died.
    """
    path = options.schedules
    if not options.tune:
        own = {} if path is None else read_schedules(path)
        return {**packaged_schedules(), **own}, {}
    path = path or cache_folder() / "schedules.json"
    _check_measurable(isa)
    own = dict(read_schedules(path)) if path.exists() else {}
    calls = (call for function in program.functions for call in function.calls)
    wanted = {w: None for call in calls if (w := workload_of(call, isa)) and w not in own}
    largest_first = sorted(wanted, key=lambda w: -w.n * w.k)
    entries = (measure or _measure_in_child)(largest_first, isa) if wanted else []
    for entry in entries:
        own[Workload(**entry["workload"])] = parse_schedule(entry["schedule"])
    if entries:
        write_schedules(path, own)
    report = {"file": str(path), "measured": entries, "unmeasured": len(wanted) - len(entries)}
    return {**packaged_schedules(), **own}, report


def _check_measurable(isa: Isa) -> None:
    missing = sorted(set(isa.features) - host_features())
    if missing:
        raise InputError(
            f"schedules are measured on this machine, which lacks {', '.join(missing)}",
            where="--tune",
            hint="tune on a machine of the target, and give its file with --schedules",
        )


def _measure_in_child(workloads: Sequence[Workload], isa: Isa) -> list[dict[str, Any]]:
    """Measure in a process that loads the compiler."""
    request = {
        "features": list(isa.features),
        "workloads": [asdict(workload) for workload in workloads],
        "threads": usable_threads(),
        "seconds": TUNE_S,
    }
    entries: list[dict[str, Any]] = MEASURING.run(json.dumps(request))
    return entries
