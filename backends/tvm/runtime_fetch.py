"""TVM's runtime libraries for another platform than this machine's: taken once from the package's
wheel, and kept in the user's cache."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from optc.backends.tvm.engine_files import code_files
from optc.errors import UnavailableError
from optc.system.cache_folder import cache_folder, keep_file
from optc.system.hardware.platforms import (
    AARCH64,
    LINUX,
    MACOS,
    MACOS_ARM,
    X86_64,
    this_platform,
)

PACKAGE = "apache-tvm"
_FOLDER = "runtimes"
#: By platform, as pip calls that of the wheels.
_WHEELS = {
    X86_64: "manylinux_2_28_x86_64",
    AARCH64: "manylinux_2_28_aarch64",
    MACOS_ARM: "macosx_11_0_arm64",
}
#: A target of each.
_TARGETS = {
    X86_64: "x86-64-v3",
    AARCH64: "aarch64-dotprod",
    MACOS_ARM: "arm64-macos-dotprod",
}


def libraries_for(platform: str) -> tuple[str, ...]:
    """Names of the libraries for ``platform`` (`optc.system.hardware.platforms.platform_of`)."""
    return code_files(MACOS if platform == MACOS_ARM else LINUX).libraries


def fetched_folder(platform: str) -> Path:
    """The folder of the installed release's libraries for ``platform``; it may not exist.

    Raises:
        UnavailableError: No release is installed.
    """
    return cache_folder() / _FOLDER / f"{PACKAGE}-{_release()}-{platform}"


def lacking(platform: str) -> str:
    """Empty if engines for ``platform`` can be given their runtime here, else the reason and the
    remedy."""
    if platform in ("", this_platform()):
        return ""
    folder = fetched_folder(platform)
    if all((folder / name).is_file() for name in libraries_for(platform)):
        return ""
    return (
        f"the runtime libraries of {PACKAGE} {_release()} for {platform} are not on this machine: "
        f"'optc targets --fetch {_TARGETS[platform]}' gets them from the package index, once"
    )


def fetch(platform: str) -> Path:
    """Download the wheel of the installed release for ``platform`` by pip, as pip is configured,
    and keep its libraries of the runtime; returns their folder.

    Raises:
        UnavailableError: There is no pip, it failed, or the wheel lacks a library.
    """
    if importlib.util.find_spec("pip") is None:
        raise UnavailableError(
            "fetching needs pip, which this environment lacks",
            where=f"{PACKAGE} for {platform}",
            hint="python -m ensurepip",
        )
    wanted = f"{PACKAGE}=={_release()}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--platform", _WHEELS[platform]]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--dest", folder, wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            tail = " | ".join(done.stderr.strip().splitlines()[-2:])
            raise UnavailableError(
                f"pip could not download {wanted} for {platform}: {tail}",
                where="optc targets --fetch",
                hint="check the network and pip's index, then call it again",
            )
        kept = fetched_folder(platform)
        _keep(wheels[0], libraries_for(platform), kept)
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
