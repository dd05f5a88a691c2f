"""The figures of an artifact or a report, by metric and engine, and two of them side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optc.artifact.report_data import SizesData
from optc.proof.conditions.differences.subject import Subject
from optc.proof.conditions.verdicts import Figures, side_by_side
from optc.system.foreign.typed_json import typed

#: Metrics of sizes and of the compile; all others are gates.
SIZES = ("bytes", "engine_bytes", "weight_bytes", "kv_bytes_per_token")
COMPILE = ("seconds", "peak_anon_bytes")


def figures_of(subject: Subject) -> dict[str, dict[str, float | None]]:
    """Gates, sizes and what the compile took: by metric, then by engine (``""``: the whole).

    Raises:
        ArtifactError: A figure in a report is no number.
    """
    found: dict[str, dict[str, float | None]] = {}
    for metric, engine, value in (*_sizes(subject), *_compile(subject), *_gates(subject)):
        found.setdefault(metric, {}).setdefault(engine, value)
    return found


def gate_changes(a: Subject, b: Subject) -> list[dict[str, Any]]:
    """Each engine's gates in both, as `optc.proof.conditions.verdicts.side_by_side`; the engine is
    the ``case``; and ``bound`` and ``passed`` of b."""
    first_last = reversed(_measured(b.report))
    verdicts = {(g.get("engine", "target"), g["name"]): g for g in first_last}
    rows = side_by_side(_only(a, gates=True), _only(b, gates=True))
    for row in rows:
        gate: Mapping[str, Any] = verdicts.get((row["case"], row["name"]), {})
        row["bound"], row["passed"] = gate.get("bound"), gate.get("passed")
    return rows


def size_changes(a: Subject, b: Subject) -> list[dict[str, Any]]:
    """Sizes and what the compiles took, as `optc.proof.conditions.verdicts.side_by_side`."""
    return side_by_side(_only(a, gates=False), _only(b, gates=False))


def _only(subject: Subject, *, gates: bool) -> Figures:
    others = {*SIZES, *COMPILE}
    return {k: v for k, v in figures_of(subject).items() if (k not in others) is gates}


def _sizes(subject: Subject) -> Iterator[tuple[str, str, float | None]]:
    manifest, report = subject.manifest, _data(subject)
    if manifest is not None:
        sizes = {entry.path: entry.bytes for entry in manifest.files}
        yield "bytes", "", sum({e.sha256: e.bytes for e in manifest.files}.values())
        for engine in manifest.engines:
            own = (sizes.get(f"{engine.folder}/{name}", 0) for name in engine.files)
            yield "engine_bytes", engine.name, sum(own)
            if engine.step is not None:
                yield "kv_bytes_per_token", engine.name, engine.step.kv_bytes_per_token
    elif report.storage is not None:
        yield "bytes", "", report.storage.bytes
    for built in report.engines:
        if built.weight_bytes is None:
            continue  # the state of an engine here, as optc inspect has it
        yield "engine_bytes", built.name or "", built.bytes
        yield "weight_bytes", built.name or "", built.weight_bytes


def _compile(subject: Subject) -> Iterator[tuple[str, str, float | None]]:
    report = _data(subject)
    for metric in COMPILE:
        if metric in subject.report:
            yield metric, "", getattr(report, metric)


def _data(subject: Subject) -> SizesData:
    return typed(subject.report, SizesData, subject.name)


def _gates(subject: Subject) -> Iterator[tuple[str, str, float | None]]:
    for gate in _measured(subject.report):
        yield gate["name"], gate.get("engine", "target"), gate["value"]


def _measured(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The gates; of those that there are twice, first what was measured on the engine itself."""
    gates: list[Mapping[str, Any]] = list(report.get("gates", []))
    return sorted(gates, key=lambda gate: (gate["value"] is None, gate["measured_on"] != "engine"))
