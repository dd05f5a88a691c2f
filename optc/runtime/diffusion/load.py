"""`load_image_generator`: from an artifact folder to an `ImageGenerator`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optc.artifact.artifact import Artifact
from optc.artifact.choose import Choice
from optc.artifact.tasks.image_generation import (
    IMAGE_GENERATION_NAME,
    LATENT_DECODER,
    TEXT_ENCODER,
)
from optc.errors import ArtifactError, UnsupportedError
from optc.runtime.diffusion.conventions import CONVENTIONS_FILE, DiffusionConventions
from optc.runtime.diffusion.generator import ImageGenerator
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.settings import ServeSettings
from optc.runtime.tensors.engine import open_folder
from optc.runtime.tensors.texts import read_tokenizer
from optc.system.foreign.file import read_file
from optc.system.foreign.typed_json import typed
from optc.system.hardware.target import usable_threads
from optc.system.options.option import with_changes
from optc.system.safe_json import JSONError, parse_json


def load_image_generator(
    path: str | Path, settings: ServeSettings | None = None, **changes: Any
) -> ImageGenerator:
    """Load an artifact that makes images.

    Args:
        path: The artifact's folder.
        settings, **changes: Of `ServeSettings` these count: ``engine``, ``threads``, ``verify``.

    Raises:
        ArtifactError: Not an artifact, or damaged; names the file.
        UnavailableError: No engine can be loaded here; gives the reason against each.
        InputError: There is no such ``engine``.
        UnsupportedError: The artifact is for another task.
    """
    settings = with_changes(settings or ServeSettings(), changes)
    artifact = Artifact.open(path, "size")
    if artifact.manifest.task.face != IMAGE_GENERATION_NAME:
        raise UnsupportedError(
            f"is for the task {artifact.manifest.task.name!r}, and makes no images",
            where=str(path),
            hint="load it with optc.load",
        )
    held = {entry.role for entry in artifact.manifest.engines}
    with artifact.contents_checked(settings.verify):
        denoiser = artifact.choose(name=settings.engine)
        beside = {
            role: artifact.choose(role, beside=denoiser.entry)
            for role in (TEXT_ENCODER, LATENT_DECODER)
            if role in held
        }
        conventions = _conventions(artifact)
    file = artifact.tokenizer_file() if TEXT_ENCODER in beside else None
    if TEXT_ENCODER in beside and file is None:
        raise ArtifactError("it has no tokenizer", where=str(path), hint="compile it again")
    threads = settings.threads or usable_threads()
    engines = {role: _open(artifact, one, threads) for role, one in beside.items()}
    return ImageGenerator(
        _open(artifact, denoiser, threads),
        engines.get(TEXT_ENCODER),
        engines.get(LATENT_DECODER),
        conventions,
        None if file is None else read_tokenizer(file),
        {
            "name": denoiser.entry.name,
            "backend": denoiser.entry.backend,
            "target": denoiser.entry.target.name,
            **{role: one.entry.name for role, one in beside.items()},
            "rejected": {other.name: other.reason for other in denoiser.rejected},
        },
    )


def _open(artifact: Artifact, choice: Choice, threads: int) -> TensorsExecutable:
    return open_folder(artifact.engine_folder(choice.entry), choice.entry, threads)


def _conventions(artifact: Artifact) -> DiffusionConventions:
    file = artifact.files.path(CONVENTIONS_FILE, "the conventions of its noise")
    try:
        return typed(parse_json(read_file(file)), DiffusionConventions, str(file))
    except (OSError, JSONError) as error:
        raise ArtifactError(f"cannot be read: {error}", where=str(file)) from error
