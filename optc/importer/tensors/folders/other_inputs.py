"""Folders of encoders that take sounds, or texts and images together: as arrays, by name."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from optc.errors import UnsupportedError
from optc.importer.remote_code import never_ask
from optc.importer.tensors.imported import ImportedTensors
from optc.importer.tensors.modules.dimensions import Dynamic
from optc.importer.tensors.modules.outputs import tensors_of
from optc.importer.tensors.program import import_module
from optc.system.foreign.errors import foreign_errors
from optc.system.sources.dim import Dim

_PROCESSOR, _SOUNDS = "preprocessor_config.json", ("input_values", "input_features")
_HINT = "give the module: package.module:factory (docs/how-to/compile-any-module.md)"
#: Seconds of the sounds of the example, and the samples of the longest sound.
_SECONDS, _MOST_SAMPLES = (0.5, 0.4), 1 << 22
_ARRAYS = "the artifact takes {} as arrays, as {} of the folder makes them of sounds"
_FIXED = "PyTorch exports it for sounds of one length alone: {} samples or frames"
_EXAMPLE = (2, 11)


class _TextsAndImages(torch.nn.Module):
    """A model of transformers that compares texts with images."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, pixel_values: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        return tensors_of(
            self.model(
                input_ids=input_ids, attention_mask=attention_mask, pixel_values=pixel_values
            )
        )


class _Values(torch.nn.Module):
    """A model of transformers over the samples of sounds, or over features of a size."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_values: torch.Tensor) -> dict[str, torch.Tensor]:
        return tensors_of(self.model(input_values=input_values))


class _MaskedValues(_Values):
    def forward(  # type: ignore[override]  # exports go by the signature
        self, input_values: torch.Tensor, attention_mask: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        return tensors_of(self.model(input_values=input_values, attention_mask=attention_mask))


class _Features(_Values):
    def forward(self, input_features: torch.Tensor) -> dict[str, torch.Tensor]:
        return tensors_of(self.model(input_features=input_features))


class _MaskedFeatures(_Values):
    def forward(  # type: ignore[override]
        self, input_features: torch.Tensor, attention_mask: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        return tensors_of(self.model(input_features=input_features, attention_mask=attention_mask))


_CLASSES: dict[tuple[str, ...], type[_Values]] = {
    ("input_values",): _Values,
    ("input_values", "attention_mask"): _MaskedValues,
    ("input_features",): _Features,
    ("input_features", "attention_mask"): _MaskedFeatures,
}


def takes_more(model: Any) -> bool:
    """True for a model that takes other things beside its texts, in one call."""
    stated = inspect.signature(model.forward).parameters
    return bool({"pixel_values", *_SOUNDS} & set(stated)) and "input_ids" in stated


def import_others(folder: Path, model: Any, batch: Dim) -> ImportedTensors:
    """A model that takes sounds, or texts and images.

    Raises:
        UnsupportedError: Its inputs are others.
    """
    main, name = str(getattr(model, "main_input_name", "")), folder.resolve().name
    if takes_more(model):
        stated = inspect.signature(model.forward).parameters
        vision = getattr(model.config, "vision_config", None)
        if "pixel_values" in stated and getattr(vision, "image_size", None):
            return _texts_and_images(model, name)
        others = [one for one in ("pixel_values", *_SOUNDS) if one in stated]
        raise UnsupportedError(
            f"it takes {' and '.join(others)} beside input_ids", where=str(folder), hint=_HINT
        )
    if main in _SOUNDS:
        return _sounds(folder, model, name, batch)
    raise UnsupportedError(
        f"its input is {main or 'unknown'}, and folders of encoders read texts, images or sounds",
        where=str(folder),
        hint=_HINT,
    )


def _texts_and_images(model: Any, name: str) -> ImportedTensors:
    text, vision = model.config.get_text_config(), model.config.vision_config
    size = vision.image_size
    height, width = size if isinstance(size, list | tuple) else (size, size)
    most = getattr(text, "max_position_embeddings", None) or 512
    texts, tokens, images = Dim("texts", 1, 1024), Dim("tokens", 1, most), Dim("images", 1, 1024)
    shape = _EXAMPLE[0], min(_EXAMPLE[1], most)
    source = torch.Generator().manual_seed(0)
    ids = torch.randint(0, text.vocab_size, shape, generator=source)
    pixels = torch.randn(3, vision.num_channels, height, width, generator=source)
    dynamic: Dynamic = {
        "input_ids": {0: texts, 1: tokens},
        "attention_mask": {0: texts, 1: tokens},
        "pixel_values": {0: images},
    }
    args = (ids, torch.ones_like(ids), pixels)
    return import_module(_TextsAndImages(model), name, args, {}, dynamic)


def _sounds(folder: Path, model: Any, name: str, batch: Dim) -> ImportedTensors:
    """As the folder's own extractor of features makes an example of noise."""
    if not (folder / _PROCESSOR).is_file():
        raise UnsupportedError(
            f"it has no {_PROCESSOR}, which says what its {model.main_input_name} are",
            where=str(folder),
            hint=_HINT,
        )
    from transformers import AutoFeatureExtractor

    never_ask()
    with foreign_errors(str(folder / _PROCESSOR), "transformers does not read it"):
        made = AutoFeatureExtractor.from_pretrained(folder, local_files_only=True)
        rate, source = int(made.sampling_rate), np.random.default_rng(0)
        noise = [source.standard_normal(int(rate * one)).astype(np.float32) for one in _SECONDS]
        found = made(noise, sampling_rate=rate, padding=True, return_tensors="pt")
    stated = inspect.signature(model.forward).parameters
    names = tuple(one for one in (*_SOUNDS, "attention_mask") if one in found and one in stated)
    if names not in _CLASSES:
        raise UnsupportedError(f"its inputs are {', '.join(found)}", where=str(folder), hint=_HINT)
    module, args = _CLASSES[names](model), tuple(found[one] for one in names)
    told = _ARRAYS.format(" and ".join(names), type(made).__name__)
    fixed: Dynamic = {one: {0: batch} for one in names}
    if names[0] != "input_values" or args[0].dim() != 2:
        return _warned(import_module(module, name, args, {}, fixed), told)
    samples = Dim("samples", rate // 8, _MOST_SAMPLES)
    try:
        both: Dynamic = {one: {0: batch, 1: samples} for one in names}
        return _warned(import_module(module, name, args, {}, both), told)
    except UnsupportedError:
        one = import_module(module, name, args, {}, fixed)
        return _warned(one, told, _FIXED.format(args[0].shape[1]))


def _warned(found: ImportedTensors, *told: str) -> ImportedTensors:
    return replace(found, warnings=(*found.warnings, *told))
