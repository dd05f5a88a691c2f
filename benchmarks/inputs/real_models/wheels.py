"""Files out of a wheel: downloaded by version and digest, streamed to disk; nothing of it is run.

pip only downloads the wheel (`--only-binary`, without dependencies): it installs nothing. What is
taken out is bounded, because a wheel of a known digest has members of known sizes.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from benchmarks.inputs.real_models.catalogue import Member, Wheel
from optc.errors import InputError, UnavailableError

#: Seconds that pip may take for one wheel.
_LIMIT_S = 1800
_PIECE = 1 << 20


def download(wheel: Wheel, folder: Path) -> Path:
    """The wheel's file in ``folder``, its digest checked.

    Raises:
        UnavailableError: pip is missing, refuses, or reaches no package index.
        InputError: The file has another digest.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
               "--only-binary=:all:", "--dest", str(folder)]  # fmt: skip
    if wheel.platform:
        command += ["--platform", wheel.platform]
    command.append(wheel.requirement)
    before = set(folder.iterdir())
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise _unavailable(wheel, f"pip took more than {_LIMIT_S} s") from error
    if done.returncode:
        raise _unavailable(wheel, reason_of(done.stderr))
    (file,) = set(folder.iterdir()) - before
    check_digest(file, wheel)
    return file


def check_digest(file: Path, wheel: Wheel) -> None:
    """Raises:
    InputError: The file is not the one of the catalogue.
    """
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != wheel.sha256:
        raise InputError(
            f"the wheel has sha256 {found}, and {wheel.sha256} is expected",
            where=wheel.requirement,
            hint="the package index gives another file under this version: use another index",
        )


def take_out(file: Path, member: Member, target: Path) -> None:
    """Append a member of a wheel to ``target``, piece by piece.

    Raises:
        InputError: The wheel has no such member.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file) as archive, target.open("ab") as output:
        try:
            source = archive.open(member.path)
        except KeyError as error:
            raise InputError(f"the wheel has no {member.path}", where=file.name) from error
        with source:
            shutil.copyfileobj(source, output, _PIECE)


def reason_of(stderr: str) -> str:
    """The reason that pip gives: its last error, or else its last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip said nothing"])[-1]


def _unavailable(wheel: Wheel, reason: str) -> UnavailableError:
    return UnavailableError(
        f"pip cannot download it: {reason}",
        where=wheel.requirement,
        hint="a package index must answer (PIP_INDEX_URL names one), or PIP_FIND_LINKS name a "
        "folder with the wheel",
    )
