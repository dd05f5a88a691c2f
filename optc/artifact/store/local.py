"""The local store: the folder in which artifacts have names beside their paths.

It is ``$OPTC_STORE``, else ``artifacts`` where the command runs, which is where ``optc compile``
writes unless it is told otherwise. There is no index: what lies there is what there is.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from optc.artifact.artifact import is_artifact, read_manifest
from optc.artifact.manifest import MANIFEST_NAME, Manifest
from optc.artifact.strangers import check_no_strangers
from optc.artifact.trust.names import SIGNATURE_NAME
from optc.errors import ArtifactError, InputError, NoArtifactError
from optc.system.suggest import near, nearest

VARIABLE = "OPTC_STORE"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
#: Folders that are on their way out, which only `remove` names so.
_REMOVED = re.compile(r"\..+\.removed-[0-9]+")


@dataclass(frozen=True)
class Stored:
    """One artifact of the store.

    Attributes:
        name: Of its folder.
        path: The folder.
        manifest: None where it cannot be read.
        problem: Why not; empty where it can.
    """

    name: str
    path: Path
    manifest: Manifest | None
    problem: str = ""

    @property
    def bytes(self) -> int:
        """Of all files, equal ones once."""
        files = () if self.manifest is None else self.manifest.files
        return sum({entry.sha256: entry.bytes for entry in files}.values())

    @property
    def written_s(self) -> float:
        """Time of its manifest's file, in seconds since 1970; an artifact itself has no time, so
        that two compiles of the same are the same."""
        return (self.path / MANIFEST_NAME).stat().st_mtime

    @property
    def signed(self) -> bool:
        """True if there is a signature; nothing says whose."""
        return (self.path / SIGNATURE_NAME).is_file()


def store_root() -> Path:
    """The folder of the store, which need not exist."""
    return Path(os.environ.get(VARIABLE) or "artifacts")


def stored() -> list[Stored]:
    """All artifacts of the store, by name, damaged ones too; nothing is hashed.

    Raises:
        InputError: The folder cannot be read.
    """
    root = store_root()
    try:
        names = sorted(entry.name for entry in os.scandir(root)) if root.is_dir() else []
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(root)) from error
    found = []
    for name in names:
        path = root / name
        if not name.startswith(".") and (path / MANIFEST_NAME).is_file():
            found.append(_stored(name, path))
    return found


def find_artifact(given: str | Path) -> Path:
    """The path that an argument means: a path that exists, else an artifact's name in the store.

    What is neither is given back as it is; who opens it says what is wrong.
    """
    path = Path(given)
    if os.path.lexists(path) or not _NAME.fullmatch(str(given)):
        return path
    named = store_root() / path
    return named if (named / MANIFEST_NAME).is_file() else path


def check_found(path: Path) -> None:
    """Refuse what cannot be an artifact where the store has what was probably meant.

    Raises:
        NoArtifactError: A folder without a manifest hides an artifact of that name, or there is
            nothing and an artifact has nearly that name.
    """
    if not _NAME.fullmatch(str(path)):
        return
    if not os.path.lexists(path):
        if found := nearest(str(path), [one.name for one in stored()]):
            hint = f"did you mean {found!r}?"
            raise NoArtifactError("no such artifact", where=str(path), hint=hint)
        return
    named = store_root() / path
    hidden = path.is_dir() and not os.path.lexists(path / MANIFEST_NAME)
    if hidden and (named / MANIFEST_NAME).is_file():
        hint = f"the store's artifact of that name is {named}"
        raise NoArtifactError(f"holds no {MANIFEST_NAME}", where=str(path), hint=hint)


def remove(path: Path) -> int:
    """Remove an artifact, in one step for whoever looks.

    Returns:
        Bytes of its files.

    Raises:
        InputError: It is no artifact, a link to one, or cannot be removed.
    """
    if path.is_symlink():
        hint = f"rm {path} removes the link, optc rm {os.readlink(path)} the artifact"
        raise InputError("is a link", where=str(path), hint=hint)
    if not is_artifact(path):
        known = [one.name for one in stored()]
        hint = near(path.name, known) if known else "optc list shows what there is"
        raise InputError("is no artifact; nothing is removed", where=str(path), hint=hint)
    check_no_strangers(path, str(path), "removed")
    size = sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
    aside = path.with_name(f".{path.name}.removed-{os.getpid()}")
    for other in path.parent.glob(".*.removed-*"):  # of a removal that was killed
        if _REMOVED.fullmatch(other.name):
            shutil.rmtree(other, ignore_errors=True)
    try:
        path.rename(aside)
        shutil.rmtree(aside)
    except OSError as error:
        problem = f"cannot be removed: {error.strerror}"
        raise InputError(problem, where=str(path)) from error
    return size


def check_name(name: str, where: str) -> str:
    """A name that an artifact of the store can have.

    Raises:
        InputError: It cannot.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is no name",
            where=where,
            hint="letters, digits and . _ + -, such as pycode-8",
        )
    return name


def _stored(name: str, path: Path) -> Stored:
    try:
        return Stored(name, path, read_manifest(path))
    except ArtifactError as error:
        return Stored(name, path, None, error.message)
