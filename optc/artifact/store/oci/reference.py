"""The place that an artifact is pushed to or pulled from."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from optc.errors import InputError

_TAG_HINT = "letters, digits and _ . -, 128 at most, the first no . or -"
_DIGEST_HINT = "a digest is sha256: and 64 digits of 0-9 and a-f"
_REPOSITORY_HINT = "lower-case letters and digits, between them one of . _ __ - or /"
_LAYOUT_EXAMPLE = "oci:FOLDER[:TAG]"
_EXAMPLE = f"{_LAYOUT_EXAMPLE} or HOST[:PORT]/REPOSITORY[:TAG]"
#: https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests
_REPOSITORY = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
_TAG = r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}"
_DIGEST = r"sha256:[0-9a-f]{64}"
_HOST = (
    r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|\[[0-9a-f:]+\])(?::[0-9]+)?"
    r"|[A-Za-z0-9-]+:[0-9]+"
)
_LAYOUT = "oci:"


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
        InputError: It names none, and why: the part that is wrong.
    """
    _, scheme, rest = text.partition("://")  # as Helm writes registries, and browsers show them
    if scheme:
        hint = f"without a scheme: {rest}" if _is_place(rest) else _EXAMPLE
        raise InputError(f"{text!r} names no layout or registry", where=where, hint=hint)
    if text.startswith(_LAYOUT):
        folder, version = _split(text.removeprefix(_LAYOUT), where)
        if not folder or "\0" in folder:
            hint = f"a layout is {_LAYOUT_EXAMPLE}"
            raise InputError(f"{text!r} names no folder", where=where, hint=hint)
        return Reference(text, folder=Path(folder), version=version)
    host, slash, named = text.partition("/")
    if not slash or not re.fullmatch(_HOST, host):
        raise InputError(
            f"{text!r} names no layout or registry", where=where, hint=_place_hint(text)
        )
    repository, version = _split(named, where)
    if not re.fullmatch(_REPOSITORY, repository):
        hint, lower = _REPOSITORY_HINT, repository.lower()
        if re.fullmatch(_REPOSITORY, lower):
            hint = f"a repository is lower case: {host}/{lower}{named[len(lower) :]}"
        raise InputError(f"{repository!r} is no repository", where=where, hint=hint)
    return Reference(text, host=host, repository=repository, version=version)


def _split(text: str, where: str) -> tuple[str, str]:
    """A folder or repository, and its version. Where both a tag and a digest are given, it is the
    digest, as docker reads it.

    What stands behind the last ``:`` or ``@`` is a version, or wrong: a mistyped one must not
    become a part of a folder's name.

    Raises:
        InputError: It has a version that is none.
    """
    place, at, digest = text.rpartition("@")
    if not at or "/" in digest:
        place, digest = text, ""
    elif not re.fullmatch(_DIGEST, digest):
        raise InputError(f"{digest!r} is no digest", where=where, hint=_DIGEST_HINT)
    name, colon, tag = place.rpartition(":")
    if not colon or "/" in tag:
        return place, digest or "latest"
    if not is_tag(tag):
        raise InputError(f"{tag!r} is no tag", where=where, hint=_TAG_HINT)
    return name, digest or tag


def _place_hint(text: str) -> str:
    """A hint at how to write a text that names no place."""
    if _is_place(f"host.example/{text}"):
        return f"oci:{text} is a layout, HOST/{text} a repository"
    return _EXAMPLE


def _is_place(text: str) -> bool:
    try:
        parse_reference(text, "")
    except InputError:
        return False
    return True
