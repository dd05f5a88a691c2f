"""Programs that PyTorch's exporter to ONNX fails at as they are, and what it says of others."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from optc import Dim
from optc.errors import UnsupportedError
from optc.importer.tensors.program import import_module
from optc.importer.tensors.translation import respell
from tests.support.ragged import run

BATCH = Dim("batch", 1, 16)


class Masked(torch.nn.Module):
    """A mask of integers that is turned by a number with a fraction, as XLNet does it."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x * (1.0 - mask)


class Biased(torch.nn.Module):
    """Attention whose bias is learned, as T5's, and heads that lie side by side behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(1, 2, 5, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
        bias = self.bias + x.mean((1, 2))[:, None, None, None]
        y = functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=bias)
        return y.transpose(1, 2).reshape(x.shape[0], 5, 8).contiguous()


def test_a_number_less_integers_becomes_a_sum() -> None:
    x, mask = torch.randn(3, 4), torch.randint(0, 2, (3, 4))
    rows = {"x": {0: BATCH}, "mask": {0: BATCH}}
    found = import_module(Masked(), "m", (x, mask), {}, rows)
    other, turned = torch.randn(5, 4), torch.randint(0, 2, (5, 4))
    ours = run(found.model, {"x": other.numpy(), "mask": turned.numpy()})
    assert (ours[0] == Masked()(other, turned).numpy()).all()


def test_only_types_with_negatives_are_respelled() -> None:
    x = torch.randn(3, 4)
    signed = torch.export.export(Masked(), (x, torch.ones(3, 4, dtype=torch.int32)))
    assert respell(signed)
    assert not respell(signed)
    bytes_ = torch.export.export(Masked(), (x, torch.ones(3, 4, dtype=torch.uint8)))
    assert not respell(bytes_)


def test_attention_with_a_learned_bias_keeps_its_order_of_memory() -> None:
    torch.manual_seed(0)
    module, x = Biased(), torch.randn(2, 5, 8)
    found = import_module(module, "m", (x,), {}, {"x": {0: BATCH}})
    other = torch.randn(7, 5, 8)
    with torch.no_grad():
        wanted = module(other).numpy()
    assert run(found.model, {"x": other.numpy()})[0] == pytest.approx(wanted, abs=1e-5)


class Untranslated(torch.nn.Module):
    """A decomposition that ONNX has no operator for."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.qr(x)[1]


def test_an_operator_without_translation_is_named() -> None:
    with pytest.raises(UnsupportedError, match="linalg_qr") as caught:
        import_module(Untranslated(), "m", (torch.randn(4, 4),), {}, {})
    assert "Create an issue" not in str(caught.value)
