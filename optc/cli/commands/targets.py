"""``optc targets``: what can be compiled for, and what this machine runs and reaches."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from optc.cli.commands.bench_tables import ceilings_text
from optc.cli.output import json_option, print_json, print_warnings, reserved_stdout, show, table
from optc.errors import UnavailableError
from optc.machine import Machine, this_machine
from optc.target import Target, known_targets, usable_threads

#: Time that the ceilings are measured.
_MEASURE_S = 2.0


@click.command("targets", short_help="List the targets and which of them run here.")
@click.option("--measure", is_flag=True, help="Measure this machine's bandwidth and peaks.")
@json_option
def command(measure: bool, as_json: bool) -> None:
    """List the targets with what they need, and which of them run here.

    With --measure: read bandwidth and int8, bf16 and fp32 peaks of this machine, on all threads.
    """
    host = this_machine()
    entries = [_describe(target, host) for target in known_targets().values()]
    warnings: list[str] = []
    ceilings = _measure(warnings) if measure else None
    if as_json:
        machine: dict[str, Any] = {
            "features": sorted(host.features),
            "sm": list(host.sm),
            "threads": usable_threads(),
        }
        if ceilings is not None:
            machine["ceilings"] = ceilings
        print_json("targets", {"targets": entries, "host": machine}, warnings)
        return
    print_warnings(warnings)
    rows = table("targets", "name", "kind", "runs here", "features")
    for entry in entries:
        runs = "yes" if entry["runs_here"] else f"no: {entry['reason']}"
        rows.add_row(entry["name"], entry["kind"], runs, " ".join(entry["features"]))
    show(rows)
    if ceilings is not None:
        show(f"{usable_threads()} threads; {ceilings_text(ceilings)}")


def _measure(warnings: list[str]) -> dict[str, Any]:
    """The ceilings of this machine, by kernels compiled for it.

    Raises:
        UnavailableError: No backend can compile or measure them here.
    """
    from optc import registry
    from optc.bench.ceilings import WORKING_SET_BYTES, ceilings_json, disturbances, sample
    from optc.bench.measurable import MeasurableBackend

    reasons = []
    for name in registry.backend_names():
        backend = registry.backend(name)
        reason = backend.available()
        if isinstance(backend, MeasurableBackend) and not reason:
            native = known_targets()["native"]
            with tempfile.TemporaryDirectory() as folder, reserved_stdout():
                meter = backend.build_meter(
                    native, Path(folder), usable_threads(), WORKING_SET_BYTES
                )
                sample(meter, _MEASURE_S)
            warnings += disturbances(meter)
            return ceilings_json(meter)
        reasons.append(f"{name}: {reason or 'measures no ceilings'}")
    raise UnavailableError(
        f"no backend can measure this machine ({'; '.join(reasons)})",
        where="targets --measure",
        hint="pip install 'optc[compile]'",
    )


def _describe(target: Target, host: Machine) -> dict[str, Any]:
    reason = host.misfit(target)
    return {
        "name": target.name,
        "kind": target.kind,
        "features": list(target.features),
        "sm": list(target.sm),
        "runs_here": not reason,
        "missing": list(target.missing_on(host.features)),
        "reason": reason,
    }
