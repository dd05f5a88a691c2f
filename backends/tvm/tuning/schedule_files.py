"""Schedules in JSON files: those of the package, and a user's own that ``--tune`` extends.

A file is ``{"format": 1, "schedules": [{"workload": {...}, "schedule": {...}}]}`` with the fields
of `Workload` and `Schedule`, sorted by workload, so that equal contents are equal bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from optc.backends.tvm.tuning.schedule import KERNELS, Schedule, Workload, parse_schedule
from optc.errors import InputError
from optc.safe_json import parse_json

FORMAT = 1
#: What is known, by workload.
Schedules = Mapping[Workload, Schedule]
_HINT = "delete the file to measure again with --tune, or name another with --schedules"
_TYPES = {"str": str, "int": int, "bool": bool}


@cache
def packaged_schedules() -> Schedules:
    """The schedules that come with the package."""
    known: dict[Workload, Schedule] = {}
    for file in files("optc.backends.tvm").joinpath("schedules").iterdir():
        if file.name.endswith(".json"):
            known.update(parse_schedules(file.read_text(), file.name))
    return known


def read_schedules(path: Path) -> Schedules:
    """The schedules in a user's file.

    Raises:
        InputError: The file cannot be read or is malformed; says where and what to do.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), hint=_HINT) from error
    return parse_schedules(text, str(path))


def parse_schedules(text: str, where: str) -> Schedules:
    """The schedules in a file's text.

    Raises:
        InputError: It is malformed; ``where`` and the entry's index tell the place.
    """
    try:
        data = parse_json(text)
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where=where, hint=_HINT) from error
    if not isinstance(data, dict) or not isinstance(data.get("schedules"), list):
        raise InputError("has no list 'schedules'", where=where, hint=_HINT)
    if data.get("format") != FORMAT:
        found = data.get("format")
        raise InputError(f"has format {found!r}, not {FORMAT}", where=where, hint=_HINT)
    known: dict[Workload, Schedule] = {}
    for index, entry in enumerate(data["schedules"]):
        place = f"{where}: schedules[{index}]"
        if not isinstance(entry, dict) or set(entry) != {"workload", "schedule"}:
            raise InputError("is not an object of workload and schedule", where=place, hint=_HINT)
        workload = _workload(entry["workload"], place)
        if workload in known:
            raise InputError("repeats the workload of another entry", where=place, hint=_HINT)
        try:
            known[workload] = parse_schedule(entry["schedule"])
        except InputError as error:
            raise InputError(error.message, where=place, hint=error.hint) from error
    return known


def write_schedules(path: Path, known: Schedules) -> None:
    """Write a file, whole or not at all.

    Raises:
        InputError: It cannot be written.
    """
    data = {"format": FORMAT, "schedules": schedules_json(known)}
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            scratch.write_text(json.dumps(data, indent=1) + "\n")
            os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        hint = "name another file with --schedules"
        raise InputError(f"cannot be written: {error}", where=str(path), hint=hint) from error


def schedules_json(known: Schedules) -> list[dict[str, Any]]:
    """The entries as JSON values, sorted by workload."""
    return [{"workload": asdict(w), "schedule": asdict(known[w])} for w in sorted(known)]


def _workload(value: Any, where: str) -> Workload:
    expected = {field.name: _TYPES[str(field.type)] for field in fields(Workload)}
    if not isinstance(value, dict) or {k: type(v) for k, v in value.items()} != expected:
        wanted = ", ".join(f"{name}: {kind.__name__}" for name, kind in expected.items())
        raise InputError(f"its workload is not {{{wanted}}}", where=where, hint=_HINT)
    if value["kernel"] not in KERNELS:
        raise InputError(f"no schedules for kernel {value['kernel']!r}", where=where, hint=_HINT)
    return Workload(**value)
