"""Programs that PyTorch's exporter to ONNX fails at as they are, and what it says of others."""

from __future__ import annotations

import onnx_ir as ir
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
    """A mask of integers that is turned by a number, as XLNet does it with a fraction."""

    def __init__(self, number: float = 1.0, alpha: int | None = None) -> None:
        super().__init__()
        self.number, self.more = number, {} if alpha is None else {"alpha": alpha}

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x * torch.rsub(mask, self.number, **self.more)


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


@pytest.mark.parametrize(
    ("number", "alpha", "kind"),
    [
        (1.0, None, torch.int64),
        (1.5, None, torch.int32),
        (2.5, 2, torch.int64),
        (1.5, None, torch.uint8),
        (-0.5, 3, torch.int8),
        (2, None, torch.int64),
        (1.5, None, torch.float32),
    ],
)
def test_a_number_less_a_tensor_of_any_type(
    number: float, alpha: int | None, kind: torch.dtype
) -> None:
    module = Masked(number, alpha)
    x, mask = torch.randn(3, 4), torch.randint(0, 2, (3, 4)).to(kind)
    rows = {"x": {0: BATCH}, "mask": {0: BATCH}}
    found = import_module(module, "m", (x, mask), {}, rows)
    other, turned = torch.randn(5, 4), torch.randint(0, 2, (5, 4)).to(kind)
    ours = run(found.model, {"x": other.numpy(), "mask": turned.numpy()})
    assert (ours[0] == module(other, turned).numpy()).all()


def test_only_tensors_of_another_type_are_converted() -> None:
    x = torch.randn(3, 4)
    promoted = torch.export.export(Masked(), (x, torch.ones(3, 4, dtype=torch.int32)))
    assert respell(promoted)
    assert not respell(promoted)
    assert not respell(torch.export.export(Masked(), (x, torch.ones(3, 4))))


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


def test_a_graph_says_nothing_of_the_machine_that_it_was_translated_on() -> None:
    """Its digest is the source's, wherever packages are installed."""
    found = import_module(Biased(), "m", (torch.randn(2, 5, 8),), {}, {"x": {0: BATCH}})
    content = ir.to_proto(found.model).SerializeToString()
    assert b"Add" in content
    assert b".py" not in content
    assert b"stack_trace" not in content
