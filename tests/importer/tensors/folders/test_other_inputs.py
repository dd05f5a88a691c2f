"""Folders whose models take sounds, or texts and images together, beside PyTorch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    ASTConfig,
    ASTFeatureExtractor,
    ASTForAudioClassification,
    CLIPConfig,
    CLIPModel,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForCTC,
)

from optc.errors import UnsupportedError
from optc.importer.tensors.encoder import import_encoder
from optc.importer.tensors.folders.other_inputs import import_others
from optc.system.sources.dim import Dim
from optc.system.sources.encoder_folder import may_be_encoder
from tests.support.ragged import run

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
SOURCE = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return SOURCE.standard_normal(shape).astype(np.float32)


def agrees(folder: Path, model: torch.nn.Module, inputs: dict[str, np.ndarray]) -> None:
    """The folder's graph gives for inputs what the model gives."""
    found = import_encoder(folder)
    with torch.no_grad():
        wanted = model(**{name: torch.from_numpy(one) for name, one in inputs.items()})
    names = [one.name for one in found.interface.outputs]
    assert [one.name for one in found.interface.inputs] == list(inputs)
    for name, output in zip(names, run(found.model, inputs), strict=True):
        np.testing.assert_allclose(output, wanted[name].numpy(), atol=1e-4)


def test_texts_and_images(tmp_path: Path) -> None:
    torch.manual_seed(0)
    text = SMALL | {"vocab_size": 50, "max_position_embeddings": 20, "eos_token_id": 3}
    vision = SMALL | {"image_size": 16, "patch_size": 8}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    model = CLIPModel(config).eval()
    model.save_pretrained(tmp_path)
    assert may_be_encoder(tmp_path)
    ids, mask = SOURCE.integers(4, 50, (2, 7)), np.ones((2, 7), np.int64)
    ids[:, -1] = 3
    inputs = {"input_ids": ids, "attention_mask": mask, "pixel_values": noise(5, 3, 16, 16)}
    agrees(tmp_path, model, inputs)


def speech(folder: Path, *, masked: bool) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = {"conv_dim": (16, 16), "conv_stride": (10, 8), "conv_kernel": (10, 8)}
    sizes = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "vocab_size": 9}
    kind = {"feat_extract_norm": "layer" if masked else "group"}
    model = Wav2Vec2ForCTC(Wav2Vec2Config(**SMALL, **layers, **sizes, **kind)).eval()
    model.save_pretrained(folder)
    Wav2Vec2FeatureExtractor(return_attention_mask=masked).save_pretrained(folder)
    return model


def test_sounds_of_any_length(tmp_path: Path) -> None:
    model = speech(tmp_path, masked=False)
    agrees(tmp_path, model, {"input_values": noise(3, 2750)})


def test_sounds_with_a_mask_have_one_length(tmp_path: Path) -> None:
    """Their classes count with the values of the mask, for which PyTorch exports no other."""
    model = speech(tmp_path, masked=True)
    mask = np.ones((3, 8000), np.int32)  # as the extractor has it
    mask[1, 6000:] = 0
    agrees(tmp_path, model, {"input_values": noise(3, 8000), "attention_mask": mask})
    assert "of one length alone: 8000 samples" in import_encoder(tmp_path).warnings[-1]


def test_features_of_sounds(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = ASTForAudioClassification(ASTConfig(**SMALL, max_length=64, num_mel_bins=32)).eval()
    model.save_pretrained(tmp_path)
    ASTFeatureExtractor(max_length=64, num_mel_bins=32).save_pretrained(tmp_path)
    agrees(tmp_path, model, {"input_values": noise(3, 64, 32)})
    (warning,) = import_encoder(tmp_path).warnings
    assert "takes input_values as arrays, as ASTFeatureExtractor" in warning


def test_what_nothing_says_or_takes_is_refused(tmp_path: Path) -> None:
    speech(tmp_path, masked=False)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(
        UnsupportedError, match=r"no preprocessor_config\.json, which says what its"
    ):
        import_encoder(tmp_path)

    def forward(input_ids: Any, input_features: Any) -> None:
        """As of a model that compares texts with sounds."""

    for model, message in (
        (SimpleNamespace(forward=forward, config=None), "takes input_features beside input_ids"),
        (SimpleNamespace(forward=lambda x: x, main_input_name="x"), "its input is x"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            import_others(tmp_path, model, Dim("batch", 1, 4))
