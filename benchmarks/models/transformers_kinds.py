"""Models of transformers' tasks at small sizes, with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import transformers

from benchmarks.families.tiny import VOCABULARY, shrunk
from benchmarks.models.architecture import Architecture, Example, Keyed
from optc.importer.tensors.encoder import _Pixels, _Texts
from optc.system.sources.dim import Dim

#: Tables of transformers by task, with the recipe of int8 and the input of its models.
TASKS = {
    "masked words": ("MODEL_FOR_MASKED_LM_MAPPING_NAMES", "encoder-int8"),
    "speech to letters": ("MODEL_FOR_CTC_MAPPING_NAMES", "encoder-int8"),
    "image classification": ("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", "vision-int8"),
    "semantic segmentation": ("MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES", "vision-int8"),
    "object detection": ("MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES", "vision-int8"),
    "depth": ("MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES", "vision-int8"),
}
_BATCH = Dim("batch", 1, 32)
IMAGE = 64
#: Parameters beyond which a model takes longer than the rest together.
_MOST_PARAMETERS = 15_000_000
#: What makes configurations of vision small.
SMALL: dict[str, Any] = {
    "image_size": IMAGE,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "hidden_dropout_prob": 0.0,
}
WINDOWS = {
    "image_size": IMAGE,
    "embed_dim": 16,
    "depths": [1, 1],
    "num_heads": [2, 4],
    "window_size": 4,
}
_STAGES = {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]}
_DETR = {
    "use_timm_backbone": False,
    "backbone": None,
    "num_queries": 10,
    "backbone_config": {
        "model_type": "resnet",
        "embedding_size": 16,
        "hidden_sizes": [16, 32, 48, 64],
        "depths": [1, 1, 1, 1],
        "out_features": ["stage4"],
    },
}
#: Sizes that hang together in ways of their own, by type.
_OWN: dict[str, dict[str, Any]] = {
    "clip": {"vision_config": SMALL},
    "metaclip_2": {"vision_config": SMALL},
    "siglip": {"vision_config": SMALL},
    "convnext": _STAGES,
    "convnextv2": _STAGES,
    "resnet": {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1]},
    "regnet": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1], "groups_width": 16},
    "donut-swin": WINDOWS,
    "swin": WINDOWS,
    "swinv2": WINDOWS,
    "pvt": {"image_size": IMAGE, "hidden_sizes": [16, 32, 64, 96], "depths": [1, 1, 1, 1]},
    "detr": _DETR,
    "table-transformer": _DETR,
    "conditional_detr": _DETR,
    "rt_detr": {"num_queries": 10},
    "rt_detr_v2": {"num_queries": 10},
    "d_fine": {"num_queries": 10},
    "rf_detr": {"num_queries": 10},
    "deimv2": {"num_queries": 10},
    "yolos": {**SMALL, "image_size": [IMAGE, IMAGE]},
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 0},
    "funnel": {"vocab_size": VOCABULARY, "d_model": 64, "n_head": 4, "d_head": 16},
    "luke": {"entity_vocab_size": VOCABULARY, "vocab_size": VOCABULARY},
    "xmod": {"default_language": "en_XX"},
    "wav2vec2-bert": {"vocab_size": VOCABULARY},
    "wav2vec2-conformer": {"vocab_size": VOCABULARY},
}


def of_transformers() -> Iterator[Architecture]:
    """Every architecture of the tasks, each type once a task."""
    from transformers.models.auto import modeling_auto

    for task, (table, recipe) in TASKS.items():
        for kind, names in getattr(modeling_auto, table).items():
            name = names if isinstance(names, str) else names[0]
            yield Architecture(name, "transformers", task, recipe, partial(_made, kind, name))


def _made(kind: str, name: str) -> Example:
    """A module over tensors, an example of its arguments, and its dynamic dimensions."""
    config_class = transformers.CONFIG_MAPPING[kind]
    kind_class = getattr(transformers, name)
    try:
        config = _config(config_class, kind)
        model = kind_class(config)
    except Exception:  # noqa: BLE001 - sizes hang together in ways of their own: as published, then
        config = config_class()
        with torch.device("meta"):
            size = sum(one.numel() for one in kind_class(config).parameters())
        if size > _MOST_PARAMETERS:
            raise ValueError(f"its least configuration has {size:,} parameters") from None
        model = kind_class(config)
    main = model.main_input_name
    if main == "pixel_values":
        size = getattr(config, "image_size", None) or IMAGE
        height, width = size if isinstance(size, list | tuple) else (size, size)
        channels = getattr(config, "num_channels", 3)
        x = torch.randn(2, channels, int(height), int(width))
        return _Pixels(model).eval(), (x,), {"pixel_values": {0: _BATCH}}
    if main == "input_ids":
        ids = torch.randint(4, min(100, config.get_text_config().vocab_size), (2, 11))
        dynamic = {one: {0: _BATCH} for one in ("input_ids", "attention_mask")}
        return _Texts(model).eval(), (ids, torch.ones_like(ids)), dynamic
    if main in ("input_values", "input_features"):
        x = torch.randn(2, 4000) if main == "input_values" else torch.randn(2, 64, _mels(config))
        return Keyed(model, (main,)).eval(), (x,), {"inputs": {0: _BATCH}}
    raise ValueError(f"its input is {main}")


def _config(config_class: Any, kind: str) -> Any:
    stated = config_class().to_dict()
    plain = {k: v for k, v in SMALL.items() if isinstance(stated.get(k), type(v))}
    if "vision_config" in _OWN.get(kind, {}):
        plain = {}
    return shrunk(config_class, plain | _OWN.get(kind, {}))


def _mels(config: Any) -> int:
    inner = getattr(config, "encoder_config", config)
    for name in ("input_dim", "num_mel_bins", "feature_projection_input_dim"):
        if size := getattr(inner, name, 0):
            return int(size)
    return 80
