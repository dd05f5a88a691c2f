"""`medusa-heads`: the heads beside the step against NumPy, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.importer.additions.heads import digest_heads
from optc.ir.linear import find_linears, head_of
from optc.passes.kv_cache.medusa_heads import MedusaHeads
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import calibration_of, weights_of
from tests.passes.kv_cache.test_hidden_states import headless
from tests.support.drafts.heads import write_heads
from tests.support.families import model_after
from tests.support.models import Dense, dense_model
from tests.support.oracle import Array
from tests.support.pipelines import pipeline_of
from tests.support.ragged import RaggedDriver

SHAPE = Dense(hidden=32, vocab=61, tied=True)
PIPELINE = "fuse-qkv,fuse-gate-up,kv-cache,medusa-heads{{folder={}}},fuse-residual-norm,fuse-rotary"


def head_of_dense(model: ir.Model) -> Array:
    """The output matrix [D, V]."""
    head = head_of(model)
    assert head is not None
    return head.weight.read_rows(0, SHAPE.vocab).T.astype(np.float64)


def expected(x: Array, blocks: list[tuple[Array, Array]], head: Array) -> Array:
    """[H * K, V], head after head for each row."""
    rows = []
    for row in x.astype(np.float64):
        for weight, bias in blocks:
            y = weight @ row + bias
            rows.append((row + y / (1 + np.exp(-y))) @ head)
    return np.array(rows)


@pytest.mark.parametrize("quantized", [False, True])
def test_heads_beside_the_step(tmp_path: Path, quantized: bool) -> None:
    blocks = write_heads(tmp_path, 3, SHAPE.hidden)
    model, plain = dense_model(SHAPE), dense_model(SHAPE)
    more = ",quantize-weights,fuse-norm-quantize" if quantized else ""
    pipeline_of(PIPELINE.format(tmp_path) + more).run(model)
    without = PIPELINE.replace("medusa-heads{{folder={}}},", "") + more
    pipeline_of(without).run(plain)
    driver = RaggedDriver(model, extra=("hidden", "medusa_logits"))
    x = np.random.default_rng(2).standard_normal((4, SHAPE.hidden)).astype(np.float32)
    driver.more_feeds["medusa_hidden"] = x
    logits = driver.step({0: [1, 2, 3], 1: [4]})
    np.testing.assert_allclose(logits, RaggedDriver(plain).step({0: [1, 2, 3], 1: [4]}), atol=2e-5)
    hidden, guesses = driver.more_results
    table = head_of_dense(dense_model(SHAPE))
    tolerance = 0.05 if quantized else 2e-5
    np.testing.assert_allclose(hidden @ table, logits, atol=tolerance)
    want = expected(x, blocks, table)
    assert guesses.shape == (12, SHAPE.vocab)
    assert np.abs(want - np.repeat(x @ table, 3, axis=0)).max() > 0.5, "the blocks matter"
    np.testing.assert_allclose(guesses, want, atol=8 * tolerance)


def refused(folder: Path) -> str:
    model = dense_model(SHAPE)
    pipeline = pipeline_of(PIPELINE.format(folder))
    with pytest.raises(InputError) as caught:
        pipeline.run(model)
    return str(caught.value)


def test_what_is_no_folder_of_heads_is_refused(tmp_path: Path) -> None:
    assert "config.json: cannot be read: No such file" in refused(tmp_path)
    write_heads(tmp_path, 2, SHAPE.hidden)
    (tmp_path / "medusa_heads.safetensors").unlink()
    assert "no medusa_heads.safetensors" in refused(tmp_path)
    write_heads(tmp_path, 2, 16)
    assert "0.0.linear.weight should be of shape [32, 32], there is [16, 16]" in refused(tmp_path)
    write_heads(tmp_path, 2, SHAPE.hidden)
    (tmp_path / "config.json").write_text(json.dumps({"accept_rates": [[0.5]]}))
    assert "4 tensors for 1 heads of one block" in refused(tmp_path)
    for text in ("{}", '{"accept_rates": [0.5]}'):
        (tmp_path / "config.json").write_text(text)
        assert "states no accept_rates" in refused(tmp_path)
    for text in ('{"accept_rates": []}', '{"accept_rates": [[2]]}'):
        (tmp_path / "config.json").write_text(text)
        assert "accept_rates need a row of rates for each head" in refused(tmp_path)


def test_heads_are_added_once(tmp_path: Path) -> None:
    write_heads(tmp_path, 2, SHAPE.hidden)
    model = model_after("kv-cache", SHAPE)
    one = MedusaHeads(folder=str(tmp_path))
    with pytest.raises(RuntimeError, match="medusa-heads added no output"):
        one.ensures(model)
    assert one.run(model).details == {"head": 2}
    one.ensures(model)
    with pytest.raises(InputError, match="has Medusa heads already"):
        one.run(model)


def test_heads_of_logits_that_come_from_no_linear_layer_are_refused(tmp_path: Path) -> None:
    write_heads(tmp_path, 2, SHAPE.hidden)
    with pytest.raises(InputError, match="the logits come from no linear layer"):
        MedusaHeads(folder=str(tmp_path)).requires(headless())


def test_heads_must_be_those_of_the_digest(tmp_path: Path) -> None:
    write_heads(tmp_path, 2, SHAPE.hidden)
    model = model_after("kv-cache", SHAPE)
    MedusaHeads(folder=str(tmp_path), sha256=digest_heads(tmp_path)).requires(model)
    with pytest.raises(InputError, match="the heads are not those of the recipe's sha256"):
        MedusaHeads(folder=str(tmp_path), sha256="ab").requires(model)


def test_weights_that_no_calibration_has_read_are_rounded_plainly(tmp_path: Path) -> None:
    """The model's own are rounded by their Hessians all the same."""
    write_heads(tmp_path, 2, SHAPE.hidden)
    model = dense_model(SHAPE)
    for linear in find_linears(model):
        hessian = np.eye(linear.weight.rows_shape[1])
        calibration_of(model).put(weights_of(linear), INPUT_HESSIAN, hessian)
    pipeline_of(PIPELINE.format(tmp_path)).run(model)
    quantize = QuantizeWeights(bits=4, group_size=32, symmetric=False, method="gptq")
    details = quantize.run(model).details
    plainly = {k: n for k, n in details.items() if "gptq" not in k and "embedding" not in k}
    assert plainly == {"int4 groups of 32 asymmetric": 1}, "medusa.blocks alone"
    assert details["int4 groups of 32 asymmetric, gptq"] > 1
    assert quantized_bits(model)["medusa.blocks.matmul"] == 4


def quantized_bits(model: ir.Model) -> dict[str, int]:
    """Bits of each quantized matmul."""
    nodes = (node for node in model.graph if node.op_type == "QuantizedMatMul")
    return {str(node.name): node.attributes.get_int("bits") for node in nodes}
