"""Where an artifact is pushed to and pulled from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from optc.errors import InputError

_EXAMPLE = "oci:FOLDER[:TAG] or HOST[:PORT]/REPOSITORY[:TAG]"
#: https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests
_REPOSITORY = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
_TAG = r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}"
_DIGEST = r"sha256:[0-9a-f]{64}"
_REGISTRY = re.compile(
    rf"(?P<host>(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|\[[0-9a-f:]+\])(?::[0-9]+)?"
    rf"|[A-Za-z0-9-]+:[0-9]+)/(?P<repository>{_REPOSITORY})"
    rf"(?::(?P<tag>{_TAG})|@(?P<digest>{_DIGEST}))?"
)
_LAYOUT = re.compile(rf"oci:(?P<folder>.+?)(?::(?P<tag>{_TAG})|@(?P<digest>{_DIGEST}))?")


@dataclass(frozen=True)
class Reference:
    """One manifest in a layout or a registry.

    Attributes:
        text: As it was written.
        folder: Of a layout; None is a registry.
        host: Of a registry, with its port.
        repository: In the registry.
        version: A tag, or ``sha256:…``.
    """

    text: str
    folder: Path | None = None
    host: str = ""
    repository: str = ""
    version: str = "latest"

    @property
    def name(self) -> str:
        """What an artifact from here is called unless it is told otherwise."""
        last = self.folder.name if self.folder is not None else self.repository.rsplit("/", 1)[-1]
        plain = self.version in ("latest",) or self.version.startswith("sha256:")
        return last if plain else f"{last}-{self.version}"


def parse_reference(text: str, where: str) -> Reference:
    """The place that ``text`` names.

    Raises:
        InputError: It names none.
    """
    layout = _LAYOUT.fullmatch(text)
    if layout is not None:
        version = layout["digest"] or layout["tag"] or "latest"
        return Reference(text, folder=Path(layout["folder"]), version=version)
    registry = _REGISTRY.fullmatch(text)
    if registry is None:
        raise InputError(f"{text!r} names no layout or registry", where=where, hint=_EXAMPLE)
    version = registry["digest"] or registry["tag"] or "latest"
    return Reference(
        text, host=registry["host"], repository=registry["repository"], version=version
    )
