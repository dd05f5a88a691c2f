from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.backends.tvm.kernels.attention import PagedAttention, paged_attention
from optc.errors import UnsupportedError
from tests.backends.tvm.attention_cases import MIXED, SMALL, attend, oracle, part, sequences
from tests.backends.tvm.kernel_cases import TARGETS, compiled, isa_named, sqnr

CONFIGS = {
    "gqa": SMALL,
    "odd-dims": PagedAttention(3, 3, 24, 40, 0.2, group=1, groups=2),
    "window-softcap": PagedAttention(8, 2, 80, 80, 0.11, softcap=30.0, window=100),
    "mqa": PagedAttention(9, 1, 16, 16, 0.25, window=20),
    "more-heads-than-a-tile": PagedAttention(19, 1, 96, 96, 0.1),
    "wide": PagedAttention(2, 1, 256, 256, 1 / 16, window=300),
    "seven-shared": PagedAttention(14, 2, 128, 128, 0.09),
}
HALF = [
    pytest.param(name, TARGETS[i % 2], id=f"{name}-{TARGETS[i % 2]}")
    for i, name in enumerate(CONFIGS)
]


@pytest.mark.parametrize(("name", "target"), HALF)
def test_against_float64(name: str, target: str) -> None:
    config = CONFIGS[name]
    step = sequences(config, MIXED)
    out = attend(config, isa_named(target), step, 16, padding=2)
    expected = oracle(config, step)
    assert not out[-2:].any()
    assert sqnr(out[:-2], expected) > 120
    assert np.abs(out[:-2] - expected).max() < 1e-5


def test_bits_do_not_depend_on_instruction_set_or_block_size() -> None:
    step = sequences(SMALL, MIXED)
    reference = attend(SMALL, isa_named(TARGETS[0]), step, 16)
    for block_size in (16, 48, 128, 512):
        out = attend(SMALL, isa_named(TARGETS[1]), step, block_size)
        np.testing.assert_array_equal(out, reference)


@pytest.mark.parametrize("name", ["gqa", "window-softcap"])
def test_bits_do_not_depend_on_batch_mates_or_chunks(name: str) -> None:
    config, isa = CONFIGS[name], isa_named(TARGETS[len(name) % 2])
    step = sequences(config, MIXED)
    together = attend(config, isa, step, 32)
    first = 0
    for sequence in step:
        rows = together[first : first + len(sequence.q)]
        first += len(sequence.q)
        np.testing.assert_array_equal(attend(config, isa, [sequence], 32), rows)
        for row in {0, len(rows) // 2, len(rows) - 1}:
            alone = attend(config, isa, [part(sequence, row, row + 1)], 32)
            np.testing.assert_array_equal(alone[0], rows[row])


@settings(max_examples=25, deadline=None, database=None)
@given(st.data())
def test_any_split_into_chunks_gives_the_same_bits(data: st.DataObject) -> None:
    rows = data.draw(st.integers(2, 60))
    tokens = rows + data.draw(st.integers(0, 600))
    sequence = sequences(SMALL, [(rows, tokens)])[0]
    cuts = sorted(data.draw(st.sets(st.integers(1, rows - 1), max_size=4)))
    bounds = list(zip([0, *cuts], [*cuts, rows], strict=True))
    isa = isa_named(TARGETS[1])
    whole = attend(SMALL, isa, [sequence], 16)
    chunks = [attend(SMALL, isa, [part(sequence, a, b)], 48) for a, b in bounds]
    np.testing.assert_array_equal(np.concatenate(chunks), whole)


def test_bits_do_not_depend_on_threads() -> None:
    isa_named("x86-64-v3")
    command = [sys.executable, "-m", "tests.backends.tvm.attention_cases"]
    runs = [
        subprocess.Popen(
            command, env={**os.environ, "TVM_NUM_THREADS": threads}, stdout=subprocess.PIPE
        )
        for threads in ("1", "2")
    ]
    digests = [process.communicate()[0] for process in runs]
    assert [process.returncode for process in runs] == [0, 0]
    assert digests[0] == digests[1]


def test_assembly_uses_the_vectors_of_its_target() -> None:
    for target, wanted in zip(TARGETS, (True, False), strict=True):
        text = compiled(SMALL, isa_named(target)).mod.inspect_source("s")
        assert "vfmadd" in text
        assert ("zmm" in text) is wanted


def test_shapes_without_a_kernel_are_refused() -> None:
    isa = isa_named(TARGETS[1])
    with pytest.raises(UnsupportedError, match="5 heads cannot share 2 KV heads evenly"):
        PagedAttention(5, 2, 64, 64, 1.0)
    with pytest.raises(UnsupportedError, match="key dimension 20 is no positive multiple of 8"):
        paged_attention(PagedAttention(4, 2, 20, 64, 1.0), isa)
