"""The manifest from its JSON: its format and digest first, then all of it by its types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optc.artifact.manifest import FORMAT_VERSION, Manifest, compiled_by, digest_of
from optc.errors import ArtifactError
from optc.runtime.executable.interface import INTERFACES
from optc.system.foreign.typed_json import typed

_DAMAGED = "copy the artifact again or compile the model again"


def parse_manifest(value: object, where: str) -> Manifest:
    """The manifest in a JSON object.

    Args:
        value: The parsed JSON.
        where: Path of the file, for messages.

    Raises:
        ArtifactError: Another format version, an interface that this optc does not know, a key
            missing, unknown, of another type or out of range, an unsafe path, pieces that do not
            make up their file, or a digest that does not match.
    """
    body = typed(value, dict[str, Any], where)
    _check_format(body, where)
    stated, digest = typed(body.pop("digest", None), str, f"{where}: digest"), digest_of(body)
    if stated != digest:
        raise ArtifactError(
            "the digest does not match the contents: the manifest was changed or damaged",
            where=where,
            hint=_DAMAGED,
        )
    _check_interfaces(body, where)
    manifest = typed({k: v for k, v in body.items() if k != "format"}, Manifest, where)
    if manifest.digest != digest:  # a field left out, or one that types ignore
        raise ArtifactError("is not in the form that optc writes", where=where, hint=_DAMAGED)
    return manifest


def _check_format(body: Mapping[str, Any], where: str) -> None:
    version = typed(body.get("format"), int, f"{where}: format")
    if version == FORMAT_VERSION:
        return
    hint = "compile it again: formats before this one were never released"
    if version > FORMAT_VERSION:
        wrote = compiled_by(body.get("packages"))
        hint = f"install {wrote} that wrote it, or compile the model again"
    raise ArtifactError(
        f"format version {version}, but this optc reads version {FORMAT_VERSION}",
        where=where,
        hint=hint,
    )


def _check_interfaces(body: Mapping[str, Any], where: str) -> None:
    """Refuse, by their names, interfaces that only another release knows."""
    engines = body.get("engines")
    for index, engine in enumerate(engines if isinstance(engines, list) else []):
        interface = engine.get("interface") if isinstance(engine, dict) else None
        kind = interface.get("type") if isinstance(interface, dict) else None
        if isinstance(kind, str) and kind not in INTERFACES:
            raise ArtifactError(
                f"this optc knows no interface {kind[:80]!r}; it knows {', '.join(INTERFACES)}",
                where=f"{where}: engines[{index}]",
                hint=f"install {compiled_by(body.get('packages'))} that wrote it",
            )
