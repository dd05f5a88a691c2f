"""Groups of weights that get one format: which there are, their bits, what their rows become."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.fuse.gate_up import FuseGateUp
from optc.passes.fuse.qkv import FuseQKV
from optc.passes.numerics.affine import dequantize_rows, quantize_rows
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.budget.groups import groups_of, rounded, sampled_rows
from optc.passes.quantize.layer_schemes import PER_CHANNEL
from optc.passes.quantize.quantize_weights import QuantizeWeights

INT3 = Scheme(3, 32, symmetric=False, integer_scales=True)


def test_what_reads_one_input_is_a_group(model: ir.Model) -> None:
    groups = groups_of(model, head=True)
    layer = [["l0.q", "l0.k", "l0.v"], ["l0.o"], ["l0.gate", "l0.up"], ["l0.down"]]
    assert [group.tensors for group in groups[:4]] == layer
    assert groups[0].name == "l0.q+k+v"
    assert [group.role for group in groups[:4]] == [group.role for group in groups[4:8]]
    assert [group.is_head for group in groups] == [False] * 8 + [True]
    assert groups_of(model, head=False) == groups[:-1]


def test_what_fusions_merge_is_in_one_group(model: ir.Model) -> None:
    """Formats by group can always be merged."""
    groups = groups_of(model, head=True)
    texts = [
        f"{name}={bits}g32"
        for bits, group in zip((2, 3, 4, 5, 2, 3, 4, 5, 6), groups, strict=True)
        for name in group.tensors
    ]
    assert FuseQKV().run(model).count == 2
    assert FuseGateUp().run(model).count == 2
    quantize = QuantizeWeights(
        bits=4, group_size=32, symmetric=False, group_scales="int", layer_bits=tuple(texts)
    )
    counts = quantize.run(model).details
    label = "int{} groups of 32 asymmetric, integer"
    assert [counts[label.format(bits)] for bits in (2, 3, 4, 5, 6)] == [2, 2, 2, 2, 1]


def test_bits_are_those_of_the_quantized_model(model: ir.Model) -> None:
    groups = groups_of(model, head=True)
    quantize = QuantizeWeights(
        bits=3, group_size=32, symmetric=False, group_scales="int", head_bits=3
    )
    facts = quantize.run(model).facts
    assert sum(group.weights for group in groups) == facts["weights"]
    bits = sum(group.bits(INT3) for group in groups)
    assert bits / facts["weights"] == pytest.approx(facts["bits_per_weight"])


def test_formats_that_do_not_fit_become_the_nearest_once(model: ir.Model) -> None:
    wide, down = groups_of(model, head=False)[2:4]
    formats = [Scheme(3, 64, False, True), INT3, PER_CHANNEL]
    assert wide.fitting(formats) == formats
    assert down.fitting(formats) == [INT3, PER_CHANNEL]  # K = 96


def test_rows_are_what_the_quantized_ones_stand_for(model: ir.Model) -> None:
    weight = groups_of(model, head=False)[0].linears[0].weight
    near = rounded(weight, INT3, None)
    rows = np.asarray(weight.read_rows(8, 40), np.float32)
    np.testing.assert_array_equal(
        near.read_rows(8, 40), dequantize_rows(quantize_rows(rows, INT3), 32)
    )
    assert near.transposed == weight.transposed


def test_samples_of_rows_are_spread() -> None:
    assert list(sampled_rows(600, 600)) == [slice(0, 256), slice(256, 512), slice(512, 600)]
    assert list(sampled_rows(2000, 512)) == [slice(0, 256), slice(1792, 2000)]
    assert len(sampled_rows(100_000, 1024)) == 4
    assert list(sampled_rows(2000, 1)) == [slice(0, 256)]
