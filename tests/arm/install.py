"""Installs qemu's user mode and a Python of aarch64 into `.arm`: ``python -m tests.arm.install``.

Both come from Debian's archive by apt, which has to be here and needs no rights for this, Python's
packages from the package index by pip. Nothing outside the folder is changed. 220 MB.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution, version
from pathlib import Path

from optc.backends.tvm.runtime_fetch import fetch, fetched_folder, lacking
from optc.system.hardware.platforms import AARCH64
from tests.arm.emulator import FOLDER, RUNTIME, missing

#: Of Debian 12, the release whose Python is the least that optc takes.
_SUITE = "deb [signed-by={keys}] http://deb.debian.org/debian bookworm main\n"
_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_QEMU = "qemu-user-static"
_PYTHON = (
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "libgomp1",
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "zlib1g",
    "libexpat1",
    "libssl3",
    "libffi8",
    "libbz2-1.0",
    "liblzma5",
    "libcrypt1",
    "libsqlite3-0",
    "libuuid1",
)
#: What the lean runtime and the tests import; those with compiled code for aarch64.
_PACKAGES = (
    "numpy",
    "tokenizers",
    "safetensors",
    "jinja2",
    "markupsafe",
    "click",
    "msgspec",
    "rich",
    "markdown-it-py",
    "mdurl",
    "pygments",
    "typing_extensions",
    "huggingface_hub",
)
_WHEELS = "manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"


def main() -> None:
    """Install what is missing."""
    if not missing():
        return
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            sys.exit(f"installing the emulator needs {tool} of Debian or Ubuntu")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    (FOLDER / "sources.list").write_text(_SUITE.format(keys=_KEYS))
    for path in _downloaded("amd64", [_QEMU]):
        subprocess.run(["dpkg", "-x", path, FOLDER / "host"], check=True)
    emulator = "qemu-aarch64-static"
    shutil.move(FOLDER / "host/usr/bin" / emulator, FOLDER / emulator)
    shutil.rmtree(FOLDER / "host")
    for path in _downloaded("arm64", list(_PYTHON)):
        subprocess.run(["dpkg", "-x", path, FOLDER / "root"], check=True)
    _install_packages()
    here = not lacking(AARCH64)
    shutil.copytree(fetched_folder(AARCH64) if here else fetch(AARCH64), RUNTIME)
    for part in ("amd64", "arm64", "wheels"):
        shutil.rmtree(FOLDER / part)
    print(f"installed in {FOLDER}")


def _downloaded(architecture: str, packages: list[str]) -> list[Path]:
    """Debian's packages for an architecture."""
    folder = FOLDER / architecture
    for part in ("lists/partial", "cache/archives/partial", "none", "debs"):
        (folder / part).mkdir(parents=True)
    options = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",
        "Dir::State::Lists": str(folder / "lists"),
        "Dir::Cache": str(folder / "cache"),
        "Dir::Etc::SourceParts": str(folder / "none"),
        "Dir::Etc::SourceList": str(FOLDER / "sources.list"),
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "download", *packages], check=True, cwd=folder / "debs")
    return sorted((folder / "debs").glob("*.deb"))


def _install_packages() -> None:
    """Unpack wheels of the releases that are installed here, and state that optc is installed."""
    wheels, site = FOLDER / "wheels", FOLDER / "site"
    wanted = [f"{name}=={version(name)}" for name in ("apache-tvm-ffi", *_PACKAGES)]
    platforms = [part for wheel in _WHEELS for part in ("--platform", wheel)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", *platforms, "--python-version", "3.11"]
    subprocess.run([*command, "--dest", str(wheels), *wanted], check=True)
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    own = distribution("optc")
    facts = site / f"optc-{own.version}.dist-info"
    facts.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (facts / name).write_text(own.read_text(name) or "")


if __name__ == "__main__":
    main()
