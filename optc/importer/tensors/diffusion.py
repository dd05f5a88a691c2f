"""Folders of pipelines of diffusers: the graphs of their parts, and the conventions of their noise.

No class of pipelines is known here. A pipeline is taken by its parts: a denoiser that takes a
sample, a time and, where there is one, the states of one encoder of texts; and, where there is one,
a decoder of latents. What else a denoiser needs is refused by its name.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from optc.artifact.tasks.image_generation import LATENT_DECODER, TEXT_ENCODER
from optc.artifact.tasks.task import TARGET
from optc.errors import InputError, UnavailableError, UnsupportedError
from optc.importer.json_file import read_object
from optc.importer.tensors.imported import ImportedTensors
from optc.importer.tensors.noise_levels import levels_of
from optc.importer.tensors.program import import_module
from optc.runtime.diffusion.conventions import DiffusionConventions
from optc.system.foreign.errors import foreign_errors
from optc.system.sources.diffusion_folder import MODEL_INDEX
from optc.system.sources.dim import Dim

#: Names of parts in a pipeline, by what they are here.
_PARTS = {TARGET: ("unet", "transformer"), LATENT_DECODER: ("vae", "vqvae", "movq")}
_ENCODER, _TOKENIZER, _SCHEDULER = "text_encoder", "tokenizer", "scheduler"
#: Parts that judge or see images, and do not make them.
_UNREAD = ("safety_checker", "feature_extractor", "image_encoder")
#: From 64 on upsampling in diffusers takes another way.
_BATCH = Dim("batch", 1, 32)
#: Arguments of a denoiser that are known, in order.
_GIVEN = (("sample", "hidden_states"), ("timestep",), ("encoder_hidden_states",))


@dataclass(frozen=True)
class ImportedDiffusion:
    """A model that makes images of noise.

    Attributes:
        parts: Graphs by role; the denoiser is the target.
        conventions: Of its noise and shapes.
        tokenizer: JSON; empty where it takes no prompts.
        name: Of the model.
        digest: sha256 in hex of all graphs and their weights.
        warnings: What the user should know.
    """

    parts: Mapping[str, ImportedTensors]
    conventions: DiffusionConventions
    tokenizer: str
    name: str
    digest: str
    warnings: tuple[str, ...]


def import_diffusion(folder: Path) -> ImportedDiffusion:
    """The pipeline in a folder of diffusers.

    Raises:
        InputError: A file is missing or cannot be read.
        UnsupportedError: It has parts, or its denoiser has inputs, that are not known.
        UnavailableError: diffusers is not installed.
    """
    listed = _listed(folder)
    name = folder.resolve().name
    scheduler = _part(folder, listed, _SCHEDULER)
    levels, warnings = levels_of(scheduler, str(folder / _SCHEDULER))
    denoiser = _part(folder, listed, _found(listed, TARGET, folder))
    encoder, tokenizer = _texts(folder, listed)
    shape = _shape(denoiser, str(folder))
    decoder = _optional(folder, listed, LATENT_DECODER)
    parts = {}
    width = 0
    if encoder is not None:
        parts[TEXT_ENCODER] = _import_encoder(encoder, name, _length(tokenizer))
        width = int(encoder.config.hidden_size)
    parts[TARGET] = _import_denoiser(denoiser, name, shape, width, _length(tokenizer))
    if decoder is not None:
        parts[LATENT_DECODER] = _import_decoder(decoder, name, shape)
    all_digests = "".join(parts[role].digest for role in sorted(parts))
    return ImportedDiffusion(
        parts,
        DiffusionConventions(levels, shape, None if encoder is None else _length(tokenizer)),
        "" if tokenizer is None else _fast(tokenizer),
        name,
        hashlib.sha256(all_digests.encode()).hexdigest(),
        warnings,
    )


def _listed(folder: Path) -> dict[str, tuple[str, str]]:
    """Library and class by the part's name, of parts that are there."""
    file = folder / MODEL_INDEX
    found = {}
    for name, value in read_object(file).items():
        if name.startswith("_") or name in _UNREAD or not isinstance(value, list):
            continue
        if value[:1] == [None]:
            continue
        if len(value) != 2 or not all(isinstance(one, str) for one in value):
            raise InputError(f"its {name} names no class", where=str(file))
        found[name] = (value[0], value[1])
    known = {_ENCODER, _TOKENIZER, _SCHEDULER, *(name for some in _PARTS.values() for name in some)}
    if strange := sorted(found.keys() - known):
        raise UnsupportedError(
            f"its part {strange[0]!r} is not known ({found[strange[0]][1]})",
            where=str(file),
            hint=f"pipelines of these parts are taken: {', '.join(sorted(known))}",
        )
    return found


def _found(listed: Mapping[str, Any], role: str, folder: Path) -> str:
    name = next((one for one in _PARTS[role] if one in listed), None)
    if name is None:
        raise UnsupportedError(
            f"it lists no denoiser ({' or '.join(_PARTS[role])})", where=str(folder / MODEL_INDEX)
        )
    return name


def _optional(folder: Path, listed: Mapping[str, tuple[str, str]], role: str) -> Any:
    name = next((one for one in _PARTS[role] if one in listed), None)
    return None if name is None else _part(folder, listed, name)


def _part(folder: Path, listed: Mapping[str, tuple[str, str]], name: str) -> Any:
    """One part, in float32."""
    if name not in listed:
        raise InputError(f"it lists no {name}", where=str(folder / MODEL_INDEX))
    library, kind = listed[name]
    found = getattr(_library(library, str(folder / MODEL_INDEX)), kind, None)
    if found is None:
        raise UnsupportedError(f"{library} has no class {kind[:100]}", where=str(folder / name))
    options = {} if name in (_SCHEDULER, _TOKENIZER) else {"torch_dtype": torch.float32}
    if hasattr(found, "config_class"):  # of transformers
        options = {key.removeprefix("torch_"): value for key, value in options.items()}
    with foreign_errors(str(folder / name), f"{library} does not read it"):
        part = found.from_pretrained(str(folder / name), local_files_only=True, **options)
    return part.eval() if isinstance(part, torch.nn.Module) else part


def _library(name: str, where: str) -> ModuleType:
    if name == "transformers":
        import transformers

        return transformers
    if name != "diffusers":
        raise UnsupportedError(f"a class of {name[:100]!r} is not known", where=where)
    try:
        import diffusers
    except ImportError as error:
        raise UnavailableError(
            "diffusers is not installed", where=where, hint="pip install 'optc[diffusion]'"
        ) from error
    return diffusers


def _texts(folder: Path, listed: Mapping[str, tuple[str, str]]) -> tuple[Any, Any]:
    """The encoder of prompts and its tokenizer; None where there is none."""
    if _ENCODER not in listed:
        return None, None
    return _part(folder, listed, _ENCODER), _part(folder, listed, _TOKENIZER)


def _length(tokenizer: Any) -> int:
    return 1 if tokenizer is None else int(tokenizer.model_max_length)


def _fast(tokenizer: Any) -> str:
    """A tokenizer as JSON, which pads and cuts prompts to the encoder's length."""
    backend, length = tokenizer.backend_tokenizer, _length(tokenizer)
    backend.enable_truncation(length)
    backend.enable_padding(
        length=length, pad_id=tokenizer.pad_token_id, pad_token=tokenizer.pad_token
    )
    return str(backend.to_str())


def _shape(denoiser: Any, where: str) -> tuple[int, int, int]:
    """Channels, height and width that the denoiser was trained on."""
    config = denoiser.config
    size = getattr(config, "sample_size", None)
    sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
    channels = getattr(config, "in_channels", None)
    if not all(isinstance(one, int) and one > 0 for one in (*sides, channels)):
        raise UnsupportedError("its denoiser states no sample_size and in_channels", where=where)
    if getattr(config, "out_channels", channels) != channels:
        raise UnsupportedError(
            f"its denoiser takes {channels} channels and gives {config.out_channels}",
            where=where,
            hint="denoisers of inpainting, or that learn the variance, are not known",
        )
    return int(channels or 0), int(sides[0]), int(sides[1])


def _import_encoder(encoder: Any, name: str, length: int) -> ImportedTensors:
    ids = torch.arange(2 * length).reshape(2, length) % int(encoder.config.vocab_size)
    return import_module(_Encoder(encoder), name, (ids,), {}, {"input_ids": {0: _BATCH}})


def _import_denoiser(
    denoiser: Any, name: str, shape: tuple[int, int, int], width: int, length: int
) -> ImportedTensors:
    _check_arguments(denoiser, name, taken=3 if width else 2)
    sample, time = torch.randn(2, *shape, generator=_seeded()), torch.tensor([400.0, 400.0])
    if not width:
        args: tuple[torch.Tensor, ...] = (sample, time)
        module: torch.nn.Module = _Denoiser(denoiser)
    else:
        args = (sample, time, torch.randn(2, length, width, generator=_seeded()))
        module = _LedDenoiser(denoiser)
    names = ("sample", "time", "context")[: len(args)]
    return import_module(module, name, args, {}, {one: {0: _BATCH} for one in names})


def _check_arguments(denoiser: Any, name: str, *, taken: int) -> None:
    """Refuse a denoiser that needs what is not given."""
    parameters = list(inspect.signature(denoiser.forward).parameters.values())
    needed = [one.name for one in parameters if one.default is inspect.Parameter.empty]
    config = denoiser.config
    kinds = ("addition_embed_type", "class_embed_type", "encoder_hid_dim_type")
    stated = {key: getattr(config, key, None) for key in kinds}
    needed += [f"{key}={value}" for key, value in stated.items() if value is not None]
    if getattr(config, "num_class_embeds", None):
        needed.append("class_labels")
    known = {one for names in _GIVEN[:taken] for one in names}
    if strange := [one for one in needed if one not in known]:
        raise UnsupportedError(
            f"its denoiser needs {strange[0]}",
            where=f"{name}, {type(denoiser).__name__}",
            hint="denoisers take a sample, a time and the states of one encoder of texts",
        )


def _import_decoder(decoder: Any, name: str, shape: tuple[int, int, int]) -> ImportedTensors:
    latents = torch.randn(2, *shape, generator=_seeded())
    return import_module(_Decoder(decoder), name, (latents,), {}, {"latents": {0: _BATCH}})


class _Encoder(torch.nn.Module):
    """Tokens to states."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"context": self.encoder(input_ids)[0]}


class _Denoiser(torch.nn.Module):
    """A noisy sample and its time to what the model predicts."""

    def __init__(self, denoiser: Any) -> None:
        super().__init__()
        self.denoiser = denoiser

    def forward(self, sample: torch.Tensor, time: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"predicted": self.denoiser(sample, time, return_dict=False)[0]}


class _LedDenoiser(_Denoiser):
    """The same, led by the states of a prompt."""

    def forward(  # type: ignore[override]
        self, sample: torch.Tensor, time: torch.Tensor, context: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        found = self.denoiser(
            sample, timestep=time, encoder_hidden_states=context, return_dict=False
        )
        return {"predicted": found[0]}


class _Decoder(torch.nn.Module):
    """Latents to images from -1 to 1."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.decoder = decoder
        self.scale = float(getattr(decoder.config, "scaling_factor", None) or 1.0)
        self.shift = float(getattr(decoder.config, "shift_factor", None) or 0.0)

    def forward(self, latents: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.decoder.decode(latents / self.scale + self.shift, return_dict=False)
        return {"image": found[0]}


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)
