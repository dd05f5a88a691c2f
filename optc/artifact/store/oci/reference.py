"""The place that an artifact is pushed to or pulled from."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from optc.errors import InputError

_TAG_HINT = "letters, digits and _ . -, 128 at most, the first no . or -"
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
        """The default name of an artifact from here."""
        last = self.folder.name if self.folder is not None else self.repository.rsplit("/", 1)[-1]
        plain = self.version in ("latest",) or self.version.startswith("sha256:")
        return last if plain else f"{last}-{self.version}"

    def tagged(self, tag: str, where: str) -> Reference:
        """The same place under another tag.

        Raises:
            InputError: It is no tag.
        """
        if not is_tag(tag):
            raise InputError(f"{tag!r} is no tag", where=where, hint=_TAG_HINT)
        place = f"{self.host}/{self.repository}" if self.folder is None else f"oci:{self.folder}"
        return replace(self, text=f"{place}:{tag}", version=tag)


def is_tag(text: str) -> bool:
    """True if a text can be a tag."""
    return re.fullmatch(_TAG, text) is not None


def parse_reference(text: str, where: str) -> Reference:
    """The place that ``text`` names.

    Raises:
        InputError: It names none.
    """
    layout = _LAYOUT.fullmatch(text)
    if layout is not None and not text.startswith("oci://"):  # as Helm writes registries
        version = layout["digest"] or layout["tag"] or "latest"
        return Reference(text, folder=Path(layout["folder"]), version=version)
    registry = _REGISTRY.fullmatch(text)
    if registry is None:
        raise InputError(f"{text!r} names no layout or registry", where=where, hint=_hint(text))
    version = registry["digest"] or registry["tag"] or "latest"
    return Reference(
        text, host=registry["host"], repository=registry["repository"], version=version
    )


def _hint(text: str) -> str:
    """A hint at how to write a text that names no place."""
    _, _, rest = text.partition("://")
    if _is_place(rest):
        return f"without a scheme: {rest}"
    if text.startswith("oci:"):
        return f"a layout is {_EXAMPLE.partition(' or ')[0]}"
    path, _, version = text.partition("@")
    if version and _is_place(path):
        return "a digest is sha256: and 64 digits of 0-9 and a-f"
    place, _, tag = path.rpartition(":")
    if place and "/" not in tag and not is_tag(tag) and _is_place(place):
        return f"a tag is made of {_TAG_HINT}"
    lower = _lower_repository(text)
    if _is_place(lower):
        return f"a repository is lower case: {lower}"
    if _is_place(f"host.example/{text}"):
        return f"oci:{text} is a layout, HOST/{text} a repository"
    return _EXAMPLE


def _is_place(text: str) -> bool:
    return bool(_LAYOUT.fullmatch(text) or _REGISTRY.fullmatch(text))


def _lower_repository(text: str) -> str:
    """The repository in lower case; host and tag as they are."""
    host, slash, rest = text.partition("/")
    path = re.split("[:@]", rest)[0]
    return f"{host}{slash}{path.lower()}{rest[len(path) :]}"
