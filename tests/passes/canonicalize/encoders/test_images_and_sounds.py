"""Encoders of images and sounds as packed rows, beside PyTorch and ONNX's own text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import transformers

from optc.importer.tensors.encoder import _Pixels
from optc.importer.tensors.imported import ImportedTensors
from optc.importer.tensors.program import import_module
from optc.ir.forms.packed import PackedRows, Patches
from optc.ir.functions import is_op
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.canonicalize.encoders.pack_rows import PackRows
from optc.passes.fuse.qkv import FuseQKV
from optc.passes.fuse.rotary import FuseRotary
from optc.passes.general.simplify import Simplify
from optc.system.sources.dim import Dim
from tests.passes.canonicalize.encoders.patches import rows_of
from tests.passes.canonicalize.texts import wrong_shapes
from tests.support.ragged import run

Array = npt.NDArray[Any]
PACKED = Pipeline((Simplify(), PackRows()))
_SMALL: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "image_size": 12,
    "patch_size": 4,
    "initializer_range": 0.3,
}
#: By name: class, its configuration, options of that, and rows that are no patches.
FAMILIES: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "vit": ("ViTForImageClassification", "ViTConfig", {"num_labels": 3}, 1),
    "deit": ("DeiTForImageClassificationWithTeacher", "DeiTConfig", {"num_labels": 3}, 2),
    "dinov2": (
        "Dinov2WithRegistersForImageClassification",
        "Dinov2WithRegistersConfig",
        {"num_labels": 3},
        5,
    ),
    "beit": ("BeitForImageClassification", "BeitConfig", {"num_labels": 3}, 1),
    "clip": ("CLIPVisionModelWithProjection", "CLIPVisionConfig", {"projection_dim": 8}, 1),
    "siglip": (
        "SiglipVisionModel",
        "SiglipVisionConfig",
        {"vision_use_head": False},
        0,
    ),
}


def randomized(module: torch.nn.Module) -> torch.nn.Module:
    """Biases, tokens and places that do something."""
    torch.manual_seed(1)
    for name, parameter in module.named_parameters():
        if parameter.dim() == 1 or "token" in name or "position" in name:
            parameter.data += 0.2 * torch.randn_like(parameter)
    return module.eval()


def imported(module: torch.nn.Module, *shape: int) -> ImportedTensors:
    """A module over f32[batch, …]."""
    dynamic: Any = {"pixel_values": {0: Dim("batch", 1, 8)}}
    return import_module(_Pixels(module), "toy", (torch.randn(2, *shape),), {}, dynamic)


def check(found: ImportedTensors, x: Array) -> PackedRows:
    """The packed graph gives what the module gives; returns its form."""
    assert found.reference is not None
    wanted = dict(found.reference({found.interface.inputs[0].name: x}))
    form = PackedRows.of(found.model)
    assert form.patches is not None
    packed = rows_of(x, form.patches)
    outputs = run(found.model, packed)
    assert wrong_shapes(found.model, packed) == []
    for value, rows in zip(found.model.graph.outputs, outputs, strict=True):
        name = str(value.name)
        if name in form.by_token:
            rows = rows.reshape(len(x), form.patches.tokens, -1)
        if name in form.heads:
            rows = rows.reshape(*rows.shape[:2], form.heads[name], -1).transpose(0, 2, 1, 3)
        assert rows.shape == wanted[name].shape
        assert np.abs(rows - wanted[name]).max() / np.abs(wanted[name]).max() < 1e-5
    return form


@pytest.mark.parametrize("name", FAMILIES)
def test_rows_are_the_models_own(name: str) -> None:
    kind, config, options, lead = FAMILIES[name]
    made = getattr(transformers, kind)(getattr(transformers, config)(**{**_SMALL, **options}))
    found = imported(randomized(made), 3, 12, 12)
    PACKED.run(found.model)
    x = np.random.default_rng(0).standard_normal((3, 3, 12, 12)).astype(np.float32)
    form = check(found, x)
    assert form.patches == Patches("pixel_values", (4, 4), 9 + lead, 1, lead)
    assert not [node for node in found.model.graph if is_op(node, "Conv", "Reshape")]


class _Sound(torch.nn.Module):
    """Two convolutions along a sequence, places, attention, and keys by head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv1d(5, 16, 3, padding=1)
        self.second = torch.nn.Conv1d(16, 16, 3, stride=2, padding=1)
        self.position = torch.nn.Parameter(torch.randn(10, 16))
        self.norm = torch.nn.LayerNorm(16)
        self.query, self.key, self.value = (torch.nn.Linear(16, 16) for _ in range(3))

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        """As Whisper's encoder does."""
        gelu = torch.nn.functional.gelu
        x = gelu(self.second(gelu(self.first(pixel_values)))).permute(0, 2, 1) + self.position
        x = self.norm(x)
        q, k, v = (
            rows.view(-1, 10, 2, 8).transpose(1, 2)
            for rows in (self.query(x) * 0.5, self.key(x), self.value(x))
        )
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)
        return {"states": x + found.transpose(1, 2).reshape(-1, 10, 16), "keys": k}


def test_convolutions_along_a_sequence_read_rows_side_by_side() -> None:
    torch.manual_seed(0)
    dynamic: Any = {"pixel_values": {0: Dim("batch", 1, 8)}}
    found = import_module(_Sound().eval(), "sound", (torch.randn(2, 5, 20),), {}, dynamic)
    Pipeline((Simplify(), PackRows(), FuseQKV(), FuseRotary())).run(found.model)
    form = check(found, np.random.default_rng(0).standard_normal((3, 5, 20)).astype(np.float32))
    assert form.patches == Patches("pixel_values", (1,), 10, 2, 0)
    assert form.heads == {"keys": 2}
    windows = [node for node in found.model.graph if is_op(node, "WindowRows", domain="optc")]
    assert [node.attributes["stride"].value for node in windows] == [1, 2]
    assert not [node for node in found.model.graph if is_op(node, "Mul")]
    (attention,) = (n for n in found.model.graph if n.op_type == "RotaryPackedAttention")
    assert attention.attributes["scale"].value == 0.5
