"""Attention by tiles of AMX: against float64, bits of VNNI and of rows alone, counted tiles."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.kernels.attention.paged_attention import PagedAttention
from optc.backends.tvm.kernels.matmul.amx.instructions import even_depth
from tests.amx.model import TARGET, Counts, has_amx, model
from tests.backends.tvm.attention_cases import (
    MIXED,
    SMALL,
    Sequence,
    attend,
    check_rows_alone,
    oracle,
    sequences,
)
from tests.backends.tvm.kernel_cases import Array, compiled, isa_named, sqnr

#: Dimensions that no tile divides, and heads of which one row has tiles of its own.
ODD = PagedAttention(3, 3, 24, 40, 0.2, group=1, groups=2, kv_dtype="int8")
MANY = PagedAttention(19, 1, 96, 80, 0.1, window=100, kv_dtype="int8", query_bits=8)
#: All else that a layer can have: two kinds of pools, a window, chunks, sinks, slopes, a softcap.
LATEST = PagedAttention(
    4,
    2,
    32,
    32,
    0.2,
    softcap=9.0,
    window=300,
    chunk=270,
    sinks=True,
    slopes=True,
    kv_dtype="int4",
    query_bits=8,
    recent=40,
    recent_group=1,
    groups=2,
)
BOTH_SIDES = PagedAttention(6, 2, 64, 64, 0.125, window=65, causal=False, kv_dtype="int8")
INTEGERS = [
    pytest.param(replace(SMALL, kv_dtype="int8"), id="15-bits"),
    pytest.param(ODD, id="odd"),
    pytest.param(MANY, id="many-heads"),
    pytest.param(replace(SMALL, kv_dtype="int4", query_bits=8), id="int4"),
    pytest.param(LATEST, id="all-else", marks=pytest.mark.long),
    pytest.param(
        replace(ODD, distances=37, group=0, groups=1), id="biases", marks=pytest.mark.long
    ),
    pytest.param(BOTH_SIDES, id="both-sides", marks=pytest.mark.long),
]
WIDE = PagedAttention(2, 1, 80, 112, 0.1, softcap=30.0, kv_dtype="bfloat16")
FLOATS = [
    pytest.param(replace(SMALL, kv_dtype="bfloat16"), id="gqa"),
    pytest.param(replace(ODD, kv_dtype="bfloat16", window=50, sinks=True), id="odd"),
    pytest.param(WIDE, id="wide", marks=pytest.mark.long),
]
#: Least signal to noise, dB, and largest error, as of other instruction sets.
BOUNDS = {"int8": (65, 4e-3), "int4": (65, 4e-3), "bfloat16": (80, 4e-3)}


def _step(config: PagedAttention) -> list[Sequence]:
    """Sequences of one row and of several; an encoder's have new rows alone."""
    return sequences(config, MIXED if config.causal else [(tokens, tokens) for _, tokens in MIXED])


def _check(config: PagedAttention, isa: Isa) -> tuple[list[Sequence], Array]:
    least, largest = BOUNDS[config.kv_dtype]
    step = _step(config)
    out, expected = attend(config, isa, step, 16, padding=2), oracle(config, step)
    assert not out[-2:].any()
    assert sqnr(out[:-2], expected) > least
    assert np.abs(out[:-2] - expected).max() < largest
    return step, out


@pytest.mark.parametrize("config", INTEGERS)
def test_integers_match_float64_with_the_bits_of_vnni(config: PagedAttention, amx: Isa) -> None:
    if not has_amx():
        model().counts()
    step, out = _check(config, amx)
    if not has_amx():
        assert model().counts().dots
    vnni = isa_named("x86-64-v4-vnni")
    for block_size in (16, 48):
        np.testing.assert_array_equal(out, attend(config, vnni, step, block_size, padding=2))
    np.testing.assert_array_equal(out, attend(config, amx, step, 48, padding=2))


@pytest.mark.parametrize("config", FLOATS)
def test_bfloat16_matches_float64_and_a_row_has_its_bits_in_any_batch(
    config: PagedAttention, amx: Isa
) -> None:
    step, out = _check(config, amx)
    np.testing.assert_array_equal(out, attend(config, amx, step, 128, padding=2))
    check_rows_alone(config, amx, step)


def _counted(config: PagedAttention, rows: int, tokens: int, amx: Isa) -> Counts:
    if has_amx():
        pytest.skip("this processor computes tiles by itself, and counts none")
    step = sequences(config, [(rows, tokens)])
    model().counts()
    attend(config, amx, step, 16)
    return model().counts()


@pytest.mark.parametrize("bits", [0, 8])
def test_tile_instructions_of_a_prompt(bits: int, amx: Isa) -> None:
    """Full tiles: a product is 16384 multiply-adds, where VNNI's are 64, and takes one load or
    five of four."""
    config = replace(SMALL, kv_dtype="int8", query_bits=bits)
    rows, tokens = 16, 256
    counts = _counted(config, rows, tokens, amx)
    planes, each = 1 if bits else 2, rows * config.heads * tokens * 64
    scores, values = planes * each // 16384, 2 * each // 16384
    assert counts.multiply_adds == (planes + 2) * each
    assert counts.dots == scores + values
    assert counts.load == (scores * 5 // 4 if bits else scores) + values
    assert counts.config == 2 * counts.release == 2 * config.kv_heads


def test_one_row_of_few_heads_has_no_tiles(amx: Isa) -> None:
    config = replace(SMALL, kv_dtype="int8")
    assert _counted(config, 1, 3000, amx).dots == 0


def test_one_row_of_bfloat16_has_tiles_of_its_heads(amx: Isa) -> None:
    config = replace(SMALL, kv_dtype="bfloat16")
    counts = _counted(config, 1, 256, amx)
    assert counts.dots == 0
    assert counts.bf16_multiply_adds == 2 * config.heads * 256 * 64


def test_products_are_of_tiles() -> None:
    """Of int8 four at once, with four loads and no vectors beside them; of bfloat16 all."""
    text = compiled(replace(SMALL, kv_dtype="int8"), isa_of(TARGET)).mod.inspect_source("s")
    blocks = re.split(r"^\.LBB\d+_\d+:", text, flags=re.MULTILINE)
    loops = [block for block in blocks if "tdpbsud" in block]
    assert loops
    assert all(block.count("tileloadd") == block.count("tdpbsud") for block in loops)
    text = compiled(replace(SMALL, kv_dtype="bfloat16"), isa_of(TARGET)).mod.inspect_source("s")
    assert "tdpbf16ps" in text
    assert "vdpbf16ps" not in text
    text = compiled(replace(SMALL, kv_dtype="float32"), isa_of(TARGET)).mod.inspect_source("s")
    assert "%tmm" not in text


def test_even_depth() -> None:
    """Dimensions are cut into equal steps, which no tile has to be made smaller for."""
    widths = (16, 24, 64, 80, 96, 128, 160, 192, 256, 512)
    assert [even_depth(width) for width in widths] == [16, 24, 64, 40, 48, 64, 40, 64, 64, 64]
