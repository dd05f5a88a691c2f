"""Identity: what was compiled by what, for what, and where; and what the compile warned of."""

from __future__ import annotations

from typing import Any

from optc.artifact.pages.components import Column, Section, numbers, paragraph, table
from optc.artifact.pages.markup import Node, element
from optc.artifact.pages.sections.subject import Subject
from optc.runtime.executable.executable import StepInterface
from optc.system.units import byte_text, kv_text


def engines(subject: Subject) -> Section:
    """The engines, their limits and their KV caches."""
    columns = [
        *(Column(name) for name in ("engine", "role", "backend", "target")),
        *numbers("context", "sequences", "KV a token"),
        Column("KV type"),
    ]
    rows = [
        (engine.name, engine.role, engine.backend, engine.target.name, *_limits(engine.step))
        for engine in subject.manifest.engines
    ]
    return Section("engines", "Engines", (table(columns, rows),))


def _limits(step: StepInterface | None) -> tuple[str, str, str, str]:
    """The last four columns; empty for an engine that takes tensors."""
    if step is None:
        return "", "", "", ""
    return (
        f"{step.max_context:,}",
        f"{step.max_sequences:,}",
        kv_text(step.kv_bytes_beyond_windows, step.kv_bytes_per_token),
        ", ".join(dict.fromkeys(layer.dtype for layer in step.layers)),
    )


def warnings(subject: Subject) -> Section | None:
    """The warnings of the compile; None if it had none."""
    found = subject.part("warnings", tuple[str, ...], ())
    if not found:
        return None
    return Section("warnings", "Warnings", (element("ul", _lines(found), class_="plain"),))


def _lines(texts: tuple[str, ...]) -> list[Node]:
    return [element("li", text) for text in texts[:100]]


def identity(subject: Subject) -> Section:
    """Digests, versions and the machine that compiled."""
    manifest = subject.manifest
    facts = [
        ("artifact", manifest.digest),
        ("source", manifest.source.digest),
        ("model", f"{manifest.name} ({manifest.source.family})"),
        ("recipe", str(manifest.recipe.get("name", ""))),
    ]
    body: list[Node] = [
        paragraph("Two compiles of the same source with the same versions have the same digest."),
        table([Column(""), Column("", "code")], facts),
        element("h3", "Versions"),
        table([Column(""), Column("", "code")], sorted(manifest.packages.items())),
    ]
    if machine := subject.part("machine", dict[str, Any], {}):
        rows = [(str(name), _text(name, value)) for name, value in machine.items()]
        body += [element("h3", "The machine that compiled"), table([Column(""), Column("")], rows)]
    return Section("identity", "Versions and digests", tuple(body))


def _text(name: str, value: Any) -> str:
    if name.endswith("_bytes") and isinstance(value, int) and not isinstance(value, bool):
        return byte_text(value) if 0 <= value < 2**62 else str(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
