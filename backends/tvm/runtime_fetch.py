"""TVM's runtime libraries for another kind of processor than this machine's: taken once from the
package's wheel, and kept in the user's cache."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from optc.errors import UnavailableError
from optc.system.cache_folder import cache_folder, keep_file

PACKAGE = "apache-tvm"
_FOLDER = "runtimes"
#: The platform of the wheels, as pip calls it, by the kind of processor.
_PLATFORMS = {"x86_64": "manylinux_2_28_x86_64", "aarch64": "manylinux_2_28_aarch64"}
#: A target of each.
_TARGETS = {"x86_64": "x86-64-v3", "aarch64": "aarch64-dotprod"}


def fetched_folder(processor: str) -> Path:
    """The folder of the installed release's libraries for ``processor``; it may not exist.

    Raises:
        UnavailableError: No release is installed.
    """
    return cache_folder() / _FOLDER / f"{PACKAGE}-{_release()}-{processor}"


def lacking(processor: str, names: tuple[str, ...]) -> str:
    """Empty if engines for ``processor`` can be given their runtime ``names`` here, else the reason
    and the remedy."""
    if processor in ("", platform.machine()):
        return ""
    folder = fetched_folder(processor)
    if all((folder / name).is_file() for name in names):
        return ""
    return (
        f"the runtime libraries of {PACKAGE} {_release()} for {processor} are not on this machine: "
        f"'optc targets --fetch {_TARGETS[processor]}' gets them from the package index, once"
    )


def fetch(processor: str, names: tuple[str, ...]) -> Path:
    """Download the wheel of the installed release for ``processor`` by pip, as pip is configured,
    and keep ``names`` of its libraries; returns their folder.

    Raises:
        UnavailableError: There is no pip, it failed, or the wheel lacks a library.
    """
    if importlib.util.find_spec("pip") is None:
        raise UnavailableError(
            "fetching needs pip, which this environment lacks",
            where=f"{PACKAGE} for {processor}",
            hint="python -m ensurepip",
        )
    wanted = f"{PACKAGE}=={_release()}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--platform", _PLATFORMS[processor]]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--dest", folder, wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            tail = " | ".join(done.stderr.strip().splitlines()[-2:])
            raise UnavailableError(
                f"pip could not download {wanted} for {processor}: {tail}",
                where="optc targets --fetch",
                hint="check the network and pip's index, then call it again",
            )
        kept = fetched_folder(processor)
        _keep(wheels[0], names, kept)
    return kept


def _keep(wheel: Path, names: tuple[str, ...], folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        members = {f"tvm/lib/{name}": name for name in names}
        missing = [name for member, name in members.items() if member not in archive.namelist()]
        if missing:
            raise UnavailableError(f"the wheel has no {', '.join(missing)}", where=wheel.name)
        contents = {name: archive.read(member) for member, name in members.items()}
        for name, content in contents.items():
            if not keep_file(folder / name, content):
                raise UnavailableError(
                    "the file cannot be written",
                    where=str(folder / name),
                    hint="OPTC_CACHE names another folder for the cache",
                )


def _release() -> str:
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise UnavailableError(
            f"{PACKAGE} is not installed", where="tvm backend", hint="pip install 'optc[compile]'"
        ) from error
