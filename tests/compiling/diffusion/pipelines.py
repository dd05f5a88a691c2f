"""Small pipelines of diffusers with random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

diffusers = pytest.importorskip("diffusers")
import torch  # noqa: E402
import transformers  # noqa: E402

SIZE = 8


def _unet(cross: int | None, channels: int = 4, **changes: object) -> object:
    torch.manual_seed(0)
    common = {
        "sample_size": SIZE,
        "in_channels": channels,
        "out_channels": channels,
        "block_out_channels": (16, 32),
        "layers_per_block": 1,
        "norm_num_groups": 4,
        **changes,
    }
    if cross is None:
        return diffusers.UNet2DModel(
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=8,
            **common,
        )
    return diffusers.UNet2DConditionModel(
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=cross,
        attention_head_dim=4,
        **common,
    )


def unconditional(folder: Path, scheduler: object | None = None) -> Path:
    """A pipeline of a denoiser alone, in pixels."""
    unet = _unet(None, channels=3)
    found = scheduler or diffusers.DDPMScheduler(num_train_timesteps=100)
    diffusers.DDPMPipeline(unet, found).save_pretrained(folder)
    return folder


def tokenizer(folder: Path) -> object:
    """CLIP's, of some letters."""
    folder.mkdir(parents=True)
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = [*letters, *(f"{one}</w>" for one in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return transformers.CLIPTokenizerFast(
        str(folder / "vocab.json"),
        str(folder / "merges.txt"),
        unk_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        model_max_length=12,
    )


def text_to_image(folder: Path, scheduler: object | None = None) -> Path:
    """A pipeline of Stable Diffusion's parts."""
    torch.manual_seed(0)
    words = tokenizer(folder / "words")
    encoder = transformers.CLIPTextModel(
        transformers.CLIPTextConfig(
            vocab_size=54,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=12,
            bos_token_id=52,
            eos_token_id=53,
        )
    ).eval()
    vae = diffusers.AutoencoderKL(
        block_out_channels=(8, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=4,
        sample_size=2 * SIZE,
    )
    pipeline = diffusers.StableDiffusionPipeline(
        vae=vae,
        text_encoder=encoder,
        tokenizer=words,
        unet=_unet(16),
        scheduler=scheduler
        or diffusers.PNDMScheduler(
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule="scaled_linear",
            skip_prk_steps=True,
            steps_offset=1,
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(folder / "pipeline")
    return folder / "pipeline"
