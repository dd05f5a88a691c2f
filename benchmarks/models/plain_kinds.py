"""Modules such as people write themselves, of PyTorch's layers alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.models.architecture import Architecture, Example, Keyed
from optc.system.sources.dim import Dim

_BATCH = Dim("batch", 1, 32)


def of_plain() -> Iterator[Architecture]:
    """Every one of them, with its inputs."""
    made = (
        ("LSTM", "series", nn.LSTM(6, 24, 2, batch_first=True), (9, 6)),
        (
            "bidirectional LSTM",
            "series",
            nn.LSTM(6, 24, bidirectional=True, batch_first=True),
            (9, 6),
        ),
        ("GRU", "series", nn.GRU(6, 24, batch_first=True), (9, 6)),
        ("RNN", "series", nn.RNN(6, 24, batch_first=True), (9, 6)),
        ("TransformerEncoder", "series", _encoder(), (9, 32)),
        ("temporal convolutions", "series", _Temporal(), (6, 40)),
        ("blocks of a forecast", "series", _Forecast(), (48,)),
        ("letters of an image", "read texts", _Letters(), (1, 32, 64)),
        ("U-net", "masks", _Unet(), (3, 32, 32)),
        ("films by convolution", "classes of films", _film(), (3, 6, 24, 24)),
        ("points", "classes of points", _Points(), (3, 50)),
        ("table of features", "clicks", _Table(), (13,)),
        ("spectrum", "classes of sounds", _Spectrum(), (1024,)),
        ("generator", "images", _generator(), (16, 1, 1)),
    )
    for name, task, module, shape in made:
        yield Architecture(name, "torch", task, _recipe(module), partial(_example, module, shape))


def _recipe(module: nn.Module) -> str:
    convolutional = any(isinstance(one, nn.Conv2d | nn.ConvTranspose2d) for one in module.modules())
    return "vision-int8" if convolutional else "products-int8"


def _example(module: nn.Module, shape: tuple[int, ...]) -> Example:
    for one in module.modules():
        if hasattr(one, "reset_parameters"):
            one.reset_parameters()  # by the seed of the row
    return Keyed(_Flat(module), ("x",)).eval(), (torch.randn(2, *shape),), {"inputs": {0: _BATCH}}


class _Flat(nn.Module):
    """Results of a module as one flat tuple."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        return tuple(torch.utils._pytree.tree_leaves(self.inner(x)))


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class _Temporal(nn.Module):
    """Dilated causal convolutions (Bai et al. 2018, https://arxiv.org/abs/1803.01271)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(6, 16, 1)
        self.layers = nn.ModuleList(nn.Conv1d(16, 16, 3, dilation=2**i) for i in range(3))
        self.last = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for index, layer in enumerate(self.layers):
            x = x + torch.relu(layer(nn.functional.pad(x, (2 * 2**index, 0))))
        return self.last(x[..., -1])


class _Forecast(nn.Module):
    """Blocks that take away what they explain (N-BEATS, https://arxiv.org/abs/1905.10437)."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 48 + 12)) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        forecast = torch.zeros(x.shape[0], 12)
        for block in self.blocks:
            back, ahead = block(x).split([48, 12], -1)
            x, forecast = x - back, forecast + ahead
        return forecast


class _Letters(nn.Module):
    """Convolutions, then an LSTM along the width (CRNN, https://arxiv.org/abs/1507.05717)."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d((1, 32))),
        )
        self.along = nn.LSTM(16, 24, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 30)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.front(x).squeeze(2).transpose(1, 2)
        return self.head(self.along(rows)[0]).log_softmax(-1)


class _Unet(nn.Module):
    """A way down and a way up (https://arxiv.org/abs/1505.04597)."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU())
        self.middle = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ELU())
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.last = nn.Conv2d(32, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        down = self.down(x)
        return self.last(torch.cat([down, self.up(self.middle(down))], 1)).softmax(1)


def _film() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv3d(3, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2)),
        *(nn.Conv3d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, 5)),
    )


class _Points(nn.Module):
    """The greatest feature of all points (PointNet, https://arxiv.org/abs/1612.00593)."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.last = nn.Sequential(nn.Conv1d(16, 32, 1), nn.PReLU())
        self.head = nn.Linear(32, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(self.each(x)).amax(-1))


class _Table(nn.Module):
    """Products of all pairs of features (DLRM, https://arxiv.org/abs/1906.00091)."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(8, 12)
        self.value = nn.Linear(1, 12)
        self.head = nn.Sequential(nn.Linear(13 * 13, 16), nn.Hardswish(), nn.Linear(16, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        at = (x * 2).round().clamp(-4, 3).long() + 4
        rows = self.value(x[..., None]) + self.places(at)
        return torch.sigmoid(self.head((rows @ rows.transpose(1, 2)).flatten(1)))


class _Spectrum(nn.Module):
    """A short-time spectrum, then convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(128))
        self.net = nn.Sequential(nn.Conv1d(65, 16, 3), nn.Mish(), nn.AdaptiveMaxPool1d(1))
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = torch.stft(x, 128, 64, window=self.window, return_complex=True)
        return self.head(self.net(torch.log1p(torch.view_as_real(found).pow(2).sum(-1)))[..., 0])


def _generator() -> nn.Module:
    """From noise to an image (DCGAN, https://arxiv.org/abs/1511.06434)."""
    return nn.Sequential(
        *(nn.ConvTranspose2d(16, 32, 4), nn.BatchNorm2d(32), nn.LeakyReLU(0.2)),
        *(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.InstanceNorm2d(16, affine=True), nn.ReLU()),
        *(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(16, 3, 3, padding=1), nn.Tanh()),
    )
