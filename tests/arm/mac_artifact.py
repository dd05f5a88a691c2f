"""An artifact whose engine for x86 is said to be one for macOS, for `tests.arm.like_macos`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from optc.artifact.jsonio import pretty_json
from optc.artifact.manifest import digest_of
from optc.backends.tvm.engine_files import code_files
from optc.system.hardware.platforms import LINUX, MACOS
from optc.system.hardware.target import known_targets


def for_macos(artifact: Path, engine: str, copy: Path) -> Path:
    """A copy of an artifact with this engine alone: its files and target are those of an M1."""
    shutil.copytree(artifact, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["engines"] = [entry for entry in manifest["engines"] if entry["name"] == engine]
    (entry,) = manifest["engines"]
    pairs = (code_files(LINUX), code_files(MACOS))
    linux, mac = ((code.engine, *code.libraries) for code in pairs)
    names = dict(zip(linux, mac, strict=True))
    for old, new in names.items():
        (copy / entry["folder"] / old).rename(copy / entry["folder"] / new)
    entry["files"] = [names.get(name, name) for name in entry["files"]]
    target = known_targets()["arm64-macos-dotprod"]
    entry["target"] |= {"name": target.name, "features": list(target.features)}
    entry["data"]["features"] = list(target.features)
    for each in copy.glob("engines/*"):
        if each != copy / entry["folder"]:
            shutil.rmtree(each)
    manifest["files"] = sorted(
        (
            _renamed(file, names)
            for file in manifest["files"]
            if _kept(file["path"], entry["folder"])
        ),
        key=lambda file: str(file["path"]),
    )
    manifest["digest"] = digest_of(manifest)
    (copy / "manifest.json").write_bytes(pretty_json(manifest))
    return copy


def _kept(path: str, folder: str) -> bool:
    return not path.startswith("engines/") or path.startswith(f"{folder}/")


def _renamed(file: dict[str, object], names: dict[str, str]) -> dict[str, object]:
    folder, _, name = str(file["path"]).rpartition("/")
    new = names.get(name, name)
    return file | {"path": f"{folder}/{new}" if folder else new}
