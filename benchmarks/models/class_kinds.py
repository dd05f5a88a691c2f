"""Classes of transformers that no table of a task lists alike: towers, video, series, policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import transformers

from benchmarks.families.tiny import shrunk
from benchmarks.models.architecture import Architecture, Example, Keyed
from benchmarks.models.transformers_kinds import IMAGE, SMALL
from optc.system.sources.dim import Dim

_BATCH = Dim("batch", 1, 32)
_TOKENS = 11
Inputs = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class _Class:
    """A class of transformers.

    Attributes:
        name: Of the class.
        task: What it is for.
        recipe: Of int8.
        inputs: Makes an example, by names of arguments.
        sizes: Of its configuration, beside those that all have.
        options: Arguments that are no tensors.
    """

    name: str
    task: str
    recipe: str
    inputs: Callable[[], Inputs]
    sizes: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def _ids(**more: torch.Tensor) -> Inputs:
    ids = torch.randint(4, 100, (2, _TOKENS))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **more}


def _pixels(*shape: int) -> Inputs:
    return {"pixel_values": torch.randn(2, *shape)}


def _images() -> Inputs:
    return _pixels(3, IMAGE, IMAGE)


def _film() -> Inputs:
    return _pixels(4, 3, IMAGE, IMAGE)


def _boxes() -> torch.Tensor:
    corner = torch.randint(4, 50, (2, _TOKENS, 2))
    return torch.cat([corner, corner], -1)


def _cells() -> torch.Tensor:
    """Columns and rows of a table that tokens stand in, and five kinds of ranks."""
    types = torch.zeros(2, _TOKENS, 7, dtype=torch.int64)
    types[..., 1:3] = torch.randint(1, 4, (2, _TOKENS, 2))
    return types


def _series(length: int, channels: int) -> Inputs:
    return {"past_values": torch.randn(2, length, channels)}


def _decisions() -> Inputs:
    shape = (2, 5)
    return {
        "states": torch.randn(*shape, 6),
        "actions": torch.randn(*shape, 3),
        "rewards": torch.randn(*shape, 1),
        "returns_to_go": torch.randn(*shape, 1),
        "timesteps": torch.randint(4, 20, shape),
        "attention_mask": torch.ones(shape, dtype=torch.int64),
    }


_SAM = {**SMALL, "global_attn_indexes": [1], "initializer_range": 0.02}
_TWO = {"text_config": {}, "vision_config": SMALL}
_FILM = {**SMALL, "num_frames": 4, "tubelet_size": 2}
_PATCHES = {"num_input_channels": 3, "context_length": 64, "patch_length": 8}
_CLASSES = (
    _Class("CLIPModel", "images and texts", "products-int8", lambda: {**_ids(), **_images()}, _TWO),
    _Class(
        "SiglipModel", "images and texts", "products-int8", lambda: {**_ids(), **_images()}, _TWO
    ),
    _Class("CLIPTextModelWithProjection", "embeddings", "encoder-int8", _ids),
    _Class("T5EncoderModel", "embeddings", "encoder-int8", _ids),
    _Class("MPNetModel", "embeddings", "encoder-int8", _ids),
    _Class("SiglipVisionModel", "embeddings", "encoder-int8", _images, SMALL),
    _Class("Dinov2Model", "embeddings", "encoder-int8", _images, SMALL),
    _Class("DINOv3ViTModel", "embeddings", "encoder-int8", _images, SMALL),
    _Class("DINOv3ConvNextModel", "embeddings", "vision-int8", _images),
    _Class(
        "BertForSequenceClassification",
        "classes of texts",
        "encoder-int8",
        _ids,
    ),
    _Class("XLNetForSequenceClassification", "classes of texts", "encoder-int8", _ids),
    _Class("CanineForSequenceClassification", "classes of texts", "products-int8", _ids),
    _Class("SplinterForQuestionAnswering", "answers in texts", "encoder-int8", _ids),
    _Class(
        "TapasForQuestionAnswering",
        "answers in tables",
        "products-int8",
        lambda: _ids(token_type_ids=_cells()),
    ),
    _Class(
        "LiltForTokenClassification",
        "documents",
        "encoder-int8",
        lambda: _ids(bbox=_boxes()),
        {"hidden_size": 96},
    ),
    _Class(
        "LayoutLMv3ForTokenClassification",
        "documents",
        "products-int8",
        lambda: _ids(bbox=_boxes(), **_images()),
        {"input_size": IMAGE, "has_relative_attention_bias": False, "coordinate_size": 8}
        | {"shape_size": 16},
    ),
    _Class(
        "ViltForQuestionAnswering",
        "images and texts",
        "products-int8",
        lambda: {**_ids(), **_images()},
        SMALL,
    ),
    _Class(
        "ASTForAudioClassification",
        "classes of sounds",
        "encoder-int8",
        lambda: {"input_values": torch.randn(2, 64, 32)},
        {"max_length": 64, "num_mel_bins": 32},
    ),
    _Class(
        "ClapAudioModelWithProjection",
        "embeddings",
        "products-int8",
        lambda: {"input_features": torch.randn(2, 1, 101, 32)},
        {
            "spec_size": 64,
            "num_mel_bins": 32,
            "patch_embeds_hidden_size": 16,
            "depths": [1, 1],
            "hidden_size": 32,
        }
        | {"num_attention_heads": [2, 4], "window_size": 4, "num_hidden_layers": 2},
    ),
    _Class(
        "WhisperForAudioClassification",
        "classes of sounds",
        "encoder-int8",
        lambda: {"input_features": torch.randn(2, 80, 64)},
        {"max_source_positions": 32},
    ),
    _Class(
        "Wav2Vec2ForSequenceClassification",
        "classes of sounds",
        "encoder-int8",
        lambda: {"input_values": torch.randn(2, 4000)},
    ),
    _Class(
        "UnivNetModel",
        "speech from features",
        "vision-int8",
        lambda: {
            "input_features": torch.randn(2, 12, 100),
            "noise_sequence": torch.randn(2, 12, 64),
        },
    ),
    _Class(
        "SpeechT5HifiGan",
        "speech from features",
        "vision-int8",
        lambda: {"spectrogram": torch.randn(2, 12, 80)},
        {"upsample_initial_channel": 64},
    ),
    _Class("VideoMAEForVideoClassification", "classes of films", "products-int8", _film, _FILM),
    _Class(
        "VivitForVideoClassification",
        "classes of films",
        "products-int8",
        _film,
        {**SMALL, "num_frames": 4, "tubelet_size": [2, 16, 16]},
    ),
    _Class("TimesformerForVideoClassification", "classes of films", "products-int8", _film, _FILM),
    _Class("PatchTSTForPrediction", "series", "products-int8", lambda: _series(64, 3), _PATCHES),
    _Class(
        "PatchTSMixerForPrediction", "series", "products-int8", lambda: _series(64, 3), _PATCHES
    ),
    _Class(
        "TimesFmModelForPrediction",
        "series",
        "products-int8",
        lambda: {"past_values": torch.randn(2, 64)},
        {"context_length": 64, "horizon_length": 32, "patch_length": 16, "head_dim": 16},
    ),
    _Class(
        "DecisionTransformerModel",
        "decisions",
        "products-int8",
        _decisions,
        {"state_dim": 6, "act_dim": 3},
    ),
    _Class(
        "Swin2SRForImageSuperResolution",
        "larger images",
        "vision-int8",
        lambda: _pixels(3, 32, 32),
        {"image_size": 32, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2]}
        | {"window_size": 4},
    ),
    _Class("SamVisionModel", "masks", "vision-int8", _images, _SAM),
    _Class(
        "MgpstrForSceneTextRecognition",
        "read texts",
        "products-int8",
        lambda: _pixels(3, 32, 128),
        {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4},
    ),
    _Class(
        "DacModel",
        "sounds as codes",
        "vision-int8",
        lambda: {"input_values": torch.randn(2, 1, 1024)},
        {"encoder_hidden_size": 8, "decoder_hidden_size": 64, "downsampling_ratios": [2, 4]}
        | {"n_codebooks": 2, "codebook_size": 32, "hidden_size": 32, "upsampling_ratios": [4, 2]},
    ),
)


def of_classes() -> Iterator[Architecture]:
    """Every one of them."""
    for one in _CLASSES:
        yield Architecture(one.name, "transformers", one.task, one.recipe, partial(_made, one))


def _made(one: _Class) -> Example:
    kind = getattr(transformers, one.name)
    config = shrunk(kind.config_class, dict(one.sizes))
    model, inputs = kind(config), one.inputs()
    keyed = Keyed(model, tuple(inputs), **one.options)
    return keyed.eval(), tuple(inputs.values()), {"inputs": {0: _BATCH}}
