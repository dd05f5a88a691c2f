"""Kernels for AVX-VNNI: exact, with the bits of AVX2, in fewer instructions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.attention.paged_attention import PagedAttention
from optc.backends.tvm.kernels.experts.int_experts import IntExperts
from optc.backends.tvm.kernels.experts.two_level_experts import TwoLevelExperts
from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm.kernels.matmul.matmul_two_level import TwoLevelMatmul
from tests.backends.tvm.attention_cases import SMALL, attend, oracle, sequences
from tests.backends.tvm.experts.cases import case_of, check
from tests.backends.tvm.kernel_cases import isa_named, sqnr
from tests.backends.tvm.matmul_cases import (
    IntCase,
    assembly,
    assert_close,
    int_case,
    isa_that_runs,
    run,
    two_level_case,
)
from tests.vnni.model import has_vnni, model

AVX2 = "x86-64-v3"
#: Whole and ragged N and K, weights of several widths, float and integer scales of groups.
MATMULS: list[Any] = [
    IntMatmul(128, 192),
    IntMatmul(100, 77, bias=True),
    IntMatmul(72, 96, 4, asymmetric=True, bias=True),
    IntMatmul(100, 128, 4, 32),
    TwoLevelMatmul(100, 96, bias=True),
    TwoLevelMatmul(64, 64, bits=2),
]
ATTENTIONS = [
    replace(SMALL, kv_dtype="int8"),
    PagedAttention(3, 3, 24, 40, 0.2, group=1, groups=2, kv_dtype="int8"),
    replace(SMALL, kv_dtype="int4", query_bits=8),
]
EXPERTS = [
    IntExperts(70, 96, bias=True, experts=4, chosen=3, spread=True),
    TwoLevelExperts(70, 64, experts=3, chosen=2),
]
#: (new rows, tokens) of sequences: decode over several blocks, a prompt, drafts.
SEQUENCES = [(1, 75), (9, 9), (3, 40)]
#: Rows of register tiles of every height, and what is left of them.
ROWS = 23


def _computed_here() -> bool:
    """Whether the model computed products since it was last asked; true where there is none."""
    return has_vnni() or model().count() > 0


def _case(config: Any) -> tuple[IntCase, list[Any]]:
    if isinstance(config, IntMatmul):
        case = int_case(config, ROWS)
        return case, case.inputs()
    case, weights = two_level_case(config, ROWS)
    return case, [*case.inputs()[:3], *weights]


@pytest.mark.parametrize("config", MATMULS, ids=lambda config: config.name)
def test_matmuls_have_the_bits_of_avx2_in_any_batch(config: Any, vnni: Isa) -> None:
    case, inputs = _case(config)
    out = run(config, vnni, inputs)
    assert _computed_here()
    assert_close(out, case.expected(), 125)
    np.testing.assert_array_equal(out, run(config, isa_that_runs(AVX2), inputs))
    for start, stop in ((0, 1), (3, 5), (2, 8), (4, 17)):
        part = run(config, vnni, [*(x[start:stop] for x in inputs[:3]), *inputs[3:]])
        np.testing.assert_array_equal(part, out[start:stop])


@pytest.mark.parametrize("config", ATTENTIONS, ids=["15-bits", "odd", "int4"])
def test_attention_has_the_bits_of_avx2(config: PagedAttention, vnni: Isa) -> None:
    step = sequences(config, SEQUENCES)
    out = attend(config, vnni, step, 16)
    assert _computed_here()
    assert sqnr(out, oracle(config, step)) > 65
    np.testing.assert_array_equal(out, attend(config, isa_named(AVX2), step, 48))


@pytest.mark.parametrize("config", EXPERTS, ids=lambda config: config.name)
def test_experts_match_float64(config: Any, vnni: Isa) -> None:
    check(case_of(config, 12 if config.spread else 12 * config.chosen), vnni, 130)
    assert _computed_here()


@pytest.mark.parametrize("config", MATMULS, ids=lambda config: config.name)
def test_its_code_needs_no_avx512_and_no_pairs_of_bytes(config: Any, vnni: Isa) -> None:
    text = assembly(config, vnni)
    assert re.search(r"\{vex\}\s+vpdpbusd\s+.*%ymm", text)
    assert "vpmaddubsw" not in text
    assert "zmm" not in text
    assert not re.search(r"%[xy]mm(1[6-9]|2\d|3[01])", text)


def test_a_product_takes_less_than_half_of_the_instructions_of_avx2(vnni: Isa) -> None:
    """All of the innermost loop of the tallest tile, for each multiply-add."""
    config = MATMULS[0]
    mine = _loop(assembly(config, vnni), "vpdpbusd", 10)
    theirs = _loop(assembly(config, isa_that_runs(AVX2)), "vpmaddubsw", 8)
    assert mine / 10 < theirs / 8 / 2


def _loop(text: str, instruction: str, count: int) -> int:
    """The fewest instructions of a loop without a label inside that has one ``count`` times."""
    text = re.sub(r"^\.Ltmp\d+:\n", "", text, flags=re.MULTILINE)
    bodies = re.findall(r"^(\.LBB\w+):\n((?:\t.*\n)*)", text, re.MULTILINE)
    loops = [body.partition(f"\t{label}\n")[0] for label, body in bodies if f"\t{label}\n" in body]
    return min(len(loop.splitlines()) for loop in loops if loop.count(instruction) == count)
