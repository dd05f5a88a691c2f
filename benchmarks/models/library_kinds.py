"""Models of timm, torchvision and diffusers, with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import torch

from benchmarks.models.architecture import Architecture, Example, Named, tensors
from optc.system.sources.dim import Dim

_BATCH = Dim("batch", 1, 32)
#: Names of timm, each of another family, and the size of its images.
_TIMM = {
    "resnet18": 96,
    "resnext50_32x4d": 64,
    "seresnet18": 96,
    "mobilenetv2_050": 96,
    "mobilenetv3_small_050": 96,
    "mobilenetv4_conv_small_050": 96,
    "efficientnet_lite0": 96,
    "efficientnetv2_rw_t": 64,
    "ghostnet_050": 96,
    "mnasnet_small": 96,
    "fbnetc_100": 96,
    "regnetx_002": 96,
    "repvgg_a0": 64,
    "repvit_m0_9": 96,
    "convnext_atto": 64,
    "convnextv2_atto": 64,
    "densenet121": 64,
    "dla34": 64,
    "hardcorenas_a": 96,
    "lcnet_050": 96,
    "tinynet_e": 96,
    "vit_tiny_patch16_224": 224,
    "deit_tiny_patch16_224": 224,
    "mixer_s32_224": 224,
    "resmlp_12_224": 224,
    "poolformerv2_s12": 64,
    "levit_128s": 224,
    "mobilevit_xxs": 64,
    "efficientvit_b0": 64,
    "fastvit_t8": 64,
    "edgenext_xx_small": 64,
    "xcit_nano_12_p16_224": 224,
}
_TORCHVISION = {
    "alexnet": 96,
    "squeezenet1_1": 64,
    "googlenet": 64,
    "inception_v3": 96,
    "shufflenet_v2_x0_5": 64,
    "mnasnet0_5": 64,
    "mobilenet_v3_small": 64,
    "efficientnet_b0": 64,
    "regnet_y_400mf": 64,
    "densenet121": 64,
    "resnet18": 64,
    "convnext_tiny": 64,
    "swin_t": 64,
    "maxvit_t": 224,
}
_SEGMENTATION = ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large", "fcn_resnet50")
_CHANNELS = (32, 64)


def of_libraries() -> Iterator[Architecture]:
    """All of them."""
    for name, size in _TIMM.items():
        yield _images(name, "timm", "image classification", partial(_timm, name, size))
    for name, size in _TORCHVISION.items():
        yield _images(name, "torchvision", "image classification", partial(_vision, name, size))
    for name in _SEGMENTATION:
        task = "semantic segmentation"
        yield _images(name, "torchvision", task, partial(_segmentation, name))
    for made in (_unet, _conditioned_unet, _dit, _sd3, _pixart, _vae, _vq, _consistency):
        name = made.__name__.strip("_")
        yield _images(_DIFFUSERS[name], "diffusers", "a step of diffusion", made)


def _images(name: str, library: str, task: str, build: Any) -> Architecture:
    return Architecture(name, library, task, "vision-int8", build)


def _one(model: Any, *shape: int, **keywords: Any) -> Example:
    return Named(model, **keywords).eval(), (torch.randn(2, *shape),), {"x": {0: _BATCH}}


def _timm(name: str, size: int) -> Example:
    return _one(
        import_module("timm").create_model(name, pretrained=False, num_classes=20), 3, size, size
    )


def _vision(name: str, size: int) -> Example:
    own: dict[str, Any] = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    model = import_module("torchvision").models.get_model(name, weights=None, num_classes=20, **own)
    return _one(model, 3, size, size)


def _segmentation(name: str) -> Example:
    model = import_module("torchvision").models.get_model(
        name, weights=None, weights_backbone=None, num_classes=5, aux_loss=None
    )
    return _one(model, 3, 64, 64)


_DIFFUSERS = {
    "unet": "UNet2DModel",
    "conditioned_unet": "UNet2DConditionModel",
    "dit": "DiTTransformer2DModel",
    "sd3": "SD3Transformer2DModel",
    "pixart": "PixArtTransformer2DModel",
    "vae": "AutoencoderKL",
    "vq": "VQModel",
    "consistency": "AutoencoderTiny",
}


class _Step(torch.nn.Module):
    """A model of diffusers: noisy images, a time, and what they are conditioned by."""

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, x: torch.Tensor, time: torch.Tensor, *more: torch.Tensor) -> Any:
        found = dict(zip(self.names, more, strict=True))
        own: dict[str, Any] = (
            {"added_cond_kwargs": {}} if hasattr(self.model, "adaln_single") else {}
        )
        return tensors(self.model(x, timestep=time, **found, **own, return_dict=False))


def _step(model: Any, x: Any, **more: Any) -> Example:
    args = (x, torch.tensor([7, 500]), *more.values())
    dynamic: dict[str, Any] = {"x": {0: _BATCH}, "time": {0: _BATCH}}
    if more:
        dynamic["more"] = {0: _BATCH}
    return _Step(model, tuple(more)).eval(), args, dynamic


def _diffusers(name: str) -> Any:
    return getattr(import_module("diffusers"), name)


def _unet() -> Example:
    model = _diffusers("UNet2DModel")(
        sample_size=16,
        block_out_channels=_CHANNELS,
        layers_per_block=1,
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    return _step(model, torch.randn(2, 3, 16, 16))


def _conditioned_unet() -> Example:
    model = _diffusers("UNet2DConditionModel")(
        sample_size=16,
        block_out_channels=_CHANNELS,
        layers_per_block=1,
        norm_num_groups=8,
        cross_attention_dim=32,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    x = torch.randn(2, 4, 16, 16)
    return _step(model, x, encoder_hidden_states=torch.randn(2, 7, 32))


def _dit() -> Example:
    model = _diffusers("DiTTransformer2DModel")(
        num_attention_heads=4, attention_head_dim=16, in_channels=4, num_layers=2, sample_size=16
    )
    return _step(model, torch.randn(2, 4, 16, 16), class_labels=torch.tensor([3, 8]))


def _sd3() -> Example:
    model = _diffusers("SD3Transformer2DModel")(
        sample_size=16,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=64,
        pooled_projection_dim=32,
        in_channels=4,
        out_channels=4,
        pos_embed_max_size=16,
    )
    more = {"encoder_hidden_states": torch.randn(2, 7, 32)}
    return _step(model, torch.randn(2, 4, 16, 16), **more, pooled_projections=torch.randn(2, 32))


def _pixart() -> Example:
    model = _diffusers("PixArtTransformer2DModel")(
        num_attention_heads=4,
        attention_head_dim=16,
        in_channels=4,
        out_channels=8,
        num_layers=2,
        cross_attention_dim=64,
        sample_size=16,
        caption_channels=32,
        use_additional_conditions=False,
    )
    x = torch.randn(2, 4, 16, 16)
    return _step(model, x, encoder_hidden_states=torch.randn(2, 7, 32))


def _vae() -> Example:
    model = _diffusers("AutoencoderKL")(
        block_out_channels=_CHANNELS,
        norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )
    return _one(model, 3, 32, 32, return_dict=False)


def _vq() -> Example:
    model = _diffusers("VQModel")(
        block_out_channels=_CHANNELS,
        norm_num_groups=8,
        num_vq_embeddings=32,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )
    return _one(model, 3, 32, 32, return_dict=False)


def _consistency() -> Example:
    model = _diffusers("AutoencoderTiny")(
        encoder_block_out_channels=(16, 16, 16, 16), decoder_block_out_channels=(16, 16, 16, 16)
    )
    return _one(model, 3, 32, 32, return_dict=False)
