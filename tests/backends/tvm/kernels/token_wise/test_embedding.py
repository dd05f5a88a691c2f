from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.token_wise.embedding import (
    Embedding,
    QuantizedEmbedding,
    embedding,
    quantized_embedding,
)
from optc.backends.tvm.kernels.token_wise.gather_rows import RowGather
from optc.backends.tvm.weights.packing import pack_bfloat16, pack_columns, pack_groups, pack_int
from optc.errors import UnsupportedError
from tests.backends.tvm.kernel_cases import TARGETS, blank, isa_named, run


@pytest.fixture(params=TARGETS)
def isa(request: pytest.FixtureRequest) -> Isa:
    return isa_named(request.param)


def test_tables_and_row_gather(isa: Isa) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((30, 50)).astype(np.float32)
    tokens = rng.integers(0, 30, 11).astype(np.int32)
    out = run(Embedding(30, 50), isa, table, tokens, blank(11, 50))[-1]
    np.testing.assert_array_equal(out, table[tokens])
    bits = (table.view(np.uint32) >> 16).astype(np.uint16)
    out = run(Embedding(30, 50, "bfloat16"), isa, bits, tokens, blank(11, 50))[-1]
    np.testing.assert_array_equal(out, (bits.astype(np.uint32) << 16).view(np.float32)[tokens])
    out = run(RowGather(50), isa, table, tokens, blank(11, 50))[-1]
    np.testing.assert_array_equal(out, table[tokens])


@pytest.mark.covering
@pytest.mark.parametrize("width", [64, 41])
def test_packed_bfloat16_head(isa: Isa, width: int) -> None:
    rng = np.random.default_rng(width)
    bits = rng.integers(0, 1 << 15, (130, width)).astype(np.uint16) & 0xBFFF  # finite
    tokens = np.array([0, 129, 64, 63, 64], np.int32)
    config = Embedding(130, width, "bfloat16", packed=True)
    out = run(config, isa, pack_bfloat16(bits), tokens, blank(5, width))[-1]
    np.testing.assert_array_equal(out, (bits.astype(np.uint32) << 16).view(np.float32)[tokens])


@pytest.mark.covering
@pytest.mark.parametrize(
    ("bits", "group", "asymmetric", "width"),
    [
        (8, 0, False, 64),
        (8, 0, False, 50),
        (8, 32, True, 64),
        (4, 32, True, 96),
        (4, 64, False, 72),
        (4, 0, False, 41),
    ],
)
def test_packed_head(isa: Isa, bits: int, group: int, asymmetric: bool, width: int) -> None:
    rng = np.random.default_rng(bits + width)
    vocab, groups = 130, -(-width // group) if group else 1
    stored = rng.integers(0, 2**bits, (vocab, width)).astype(np.uint8)
    scale = rng.standard_normal((vocab, groups)).astype(np.float16)
    zero = rng.integers(0, 2**bits, (vocab, groups)).astype(np.uint8)
    zeros = zero.astype(np.float32) if asymmetric else np.full(zero.shape, 2.0 ** (bits - 1))
    index = np.arange(width) // (group or width)
    rows = (stored - zeros[:, index]).astype(np.float32) * scale.astype(np.float32)[:, index]
    tokens = np.append(rng.integers(0, vocab, 7), [0, vocab - 1]).astype(np.int32)
    operands = [pack_int(stored, bits), pack_columns(scale, np.float16 if group else np.float32)]
    if asymmetric:
        operands.append(pack_columns(zero, np.uint8))
    config = QuantizedEmbedding(vocab, width, bits, group, asymmetric)
    out = run(config, isa, tokens, *operands, blank(9, width))[-1]
    np.testing.assert_array_equal(out, rows[tokens])


@pytest.mark.covering
@pytest.mark.parametrize(("bits", "greatest_scale"), [(2, 42), (3, 18), (4, 8), (5, 4), (6, 2)])
def test_packed_head_with_integer_scales(isa: Isa, bits: int, greatest_scale: int) -> None:
    rng = np.random.default_rng(11)
    stored = rng.integers(0, 1 << bits, (130, 96), np.uint8)
    scales, offsets = (
        rng.integers(1, greatest_scale + 1, (130, 3), np.uint8),
        rng.integers(8, 129, (130, 3), np.uint8),
    )
    channels = rng.standard_normal(130).astype(np.float32)
    group = np.arange(96) // 32
    steps = stored.astype(int) * scales[:, group] + offsets[:, group].astype(int) - 128
    tokens = np.array([0, 129, 64, 63, 64], np.int32)
    operands = [
        pack_int(stored, bits),
        pack_groups(scales, offsets),
        pack_columns(channels, np.float32),
    ]
    config = QuantizedEmbedding(130, 96, bits, 32, True, two_level=True)
    out = run(config, isa, tokens, *operands, blank(5, 96))[-1]
    np.testing.assert_array_equal(out, (steps.astype(np.float32) * channels[:, None])[tokens])


def test_unknown_layouts_are_refused(isa: Isa) -> None:
    with pytest.raises(UnsupportedError, match="table of int8 has no CPU kernel"):
        embedding(Embedding(4, 8, "int8"), isa)
    with pytest.raises(UnsupportedError, match="packed table of float32 has no CPU kernel"):
        embedding(Embedding(4, 8, packed=True), isa)
    with pytest.raises(UnsupportedError, match="no packed layout for 3 bits in groups of 0"):
        quantized_embedding(QuantizedEmbedding(4, 8, 3), isa)
    with pytest.raises(UnsupportedError, match="3 bits in groups of 32"):
        quantized_embedding(QuantizedEmbedding(4, 64, 3, 32), isa)
    with pytest.raises(UnsupportedError, match="4 bits in groups of 24"):
        quantized_embedding(QuantizedEmbedding(4, 48, 4, 24), isa)
