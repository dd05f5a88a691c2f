"""Mixtures of experts through the passes: the step equals the dense model in every precision."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import UnsupportedError
from optc.ir.forms.ragged import RaggedStep
from optc.ir.functions import make_node
from optc.ir.linear import find_linears
from optc.ir.pipeline.base import Pass, PassReport
from optc.ir.pipeline.record import PassRecord
from optc.ir.weights import LazyWeight, as_lazy
from optc.passes.adapters.add_adapters import AddAdapters
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.folding.places import find_places
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.rotate.residual import NotTurnableError, find_residual
from optc.proof.reference.calibration import calibration_of, weights_of
from tests.support import oracle
from tests.support.experts.models import Experts, expert_model
from tests.support.experts.oracle import expert_matmul, mixture
from tests.support.ir_text import Array, f32
from tests.support.models import Dense
from tests.support.pipelines import pipeline_of
from tests.support.ragged import RaggedDriver, run, run_dense

FUSED = "fuse-qkv,fuse-gate-up,kv-cache,fuse-residual-norm,fuse-rotary"
SHAPE = Dense(hidden=64, inner=32, windows=(0,))
MIXED = Experts(bias=True, corrected=True)
TOKENS = [int(t) for t in np.random.default_rng(0).integers(0, 61, 11)]


def after(spec: str, experts: Experts = MIXED) -> tuple[ir.Model, dict[str, PassRecord]]:
    model = expert_model(SHAPE, experts)
    records = pipeline_of(spec).run(model)
    return model, {record.name: record for record in records}


def logits(model: ir.Model) -> Array:
    """Of all tokens, in two chunks beside another sequence."""
    driver = RaggedDriver(model)
    first = driver.step({0: TOKENS[:4], 1: TOKENS[5:8]})[:4]
    return np.concatenate([first, driver.step({1: TOKENS[2:3], 0: TOKENS[4:]})[1:]])


def kinds(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def test_the_dense_model_is_what_numpy_computes() -> None:
    model = expert_model(SHAPE, Experts())
    weights = {
        name: value.const_value.numpy()
        for name, value in model.graph.initializers.items()
        if isinstance(value.const_value, LazyWeight)
    }
    nodes = list(model.graph)
    router = next(node for node in nodes if node.op_type == "TopKRouter")
    combine = next(node for node in nodes if node.op_type == "CombineExperts")
    normed = next(node.inputs[0] for node in nodes if node.outputs[0] is router.inputs[0])
    assert normed is not None
    x = f32(1, 7, SHAPE.hidden)
    part = ir.convenience.extract(model.graph, [normed], [combine.outputs[0]])
    cut = ir.Model(part, ir_version=model.ir_version, functions=list(model.functions.values()))
    (got,) = run(cut, {str(normed.name): x})
    parts = (weights[f"0.{one}"] for one in ("router.weight", "gate_up", "down"))
    np.testing.assert_allclose(got, mixture(x, *parts, 6, 2, normalize=1), rtol=1e-4, atol=1e-5)


def test_a_step_equals_the_dense_model() -> None:
    model, records = after(FUSED)
    assert records["fuse-gate-up"].report.details == {"silu": 1}
    found = kinds(model)
    assert (found["TopKRouter"], found["ExpertMatMul"], found["CombineExperts"]) == (1, 2, 1)
    np.testing.assert_allclose(
        logits(model), run_dense(expert_model(SHAPE, MIXED), TOKENS), rtol=1e-4, atol=1e-5
    )


def test_rows_without_logits_are_left_out_in_the_last_layer() -> None:
    model, _ = after(FUSED)
    shapes = {n.op_type: n.outputs[0].shape for n in model.graph if n.domain == "optc"}
    assert list(shapes["ExpertMatMul"] or ()) == ["R", 2, 64]
    driver = RaggedDriver(model)
    wanted = driver.step({0: TOKENS}, wanted=[3, 10])
    np.testing.assert_allclose(wanted, logits(model)[[3, 10]], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "bits", "label"),
    [
        ("", 8, "int8 per channel, experts"),
        (
            "{bits=4,group_size=32,symmetric=false}",
            4,
            "int4 groups of 32 asymmetric, experts",
        ),
        (
            "{bits=4,group_size=32,symmetric=false,group_scales=int}",
            4,
            "int4 groups of 32 asymmetric, integer, experts",
        ),
    ],
)
def test_quantized_experts_are_off_by_their_rounding(options: str, bits: int, label: str) -> None:
    """Each node, for random operands, against float weights in NumPy."""
    model, records = after(f"{FUSED},quantize-weights{options},fuse-norm-quantize")
    report = records["quantize-weights"].report
    assert report.details[label] == 2
    assert any("a router reads its result: it stays float" in one for one in report.skipped)
    assert kinds(model)["GatedActivationQuantize"] == 1
    given = expert_model(SHAPE, MIXED).graph.initializers
    nodes = [node for node in model.graph if node.op_type == "QuantizedExpertMatMul"]
    for node, name in zip(nodes, ("0.gate_up", "0.down"), strict=True):
        weight = given[name].const_value
        assert weight is not None
        columns, spread = weight.numpy(), name == "0.gate_up"
        x = f32(5, len(columns)) if spread else f32(5, 2, len(columns))
        q, s = oracle.quantize_activation(x)
        experts = np.array([[0, 5], [3, 1], [2, 0], [5, 4], [1, 2]], np.int32)
        got = part_of(model, node, [q, s.astype(np.float32), experts])
        bias = given[f"{name}.bias"].const_value
        assert bias is not None
        want = expert_matmul(q * s, experts, columns, 6, bias.numpy(), spread=spread)
        # half a step of the widest row for each input; zero points and integer scales take more
        step = 2 * np.abs(columns).max() / ((1 << bits) - 1)
        most = np.abs(q * s).sum(-1, keepdims=True)[..., None if spread else slice(None)] * step
        assert (np.abs(got - want) < 0.75 * most + 1e-4).all()
        assert np.linalg.norm(got - want) / np.linalg.norm(want) < (0.01 if bits == 8 else 0.15)


def test_experts_read_8_bits_beside_layers_that_read_16() -> None:
    model, _ = after(f"{FUSED},quantize-weights{{activation_bits=16}},fuse-norm-quantize")
    read = [
        (node.op_type, value.dtype)
        for node in model.graph
        if node.op_type in ("QuantizedMatMul", "QuantizedExpertMatMul")
        and (value := node.inputs[0]) is not None
    ]
    assert {kind for name, kind in read if name == "QuantizedMatMul"} == {ir.DataType.INT16}
    assert {kind for name, kind in read if name != "QuantizedMatMul"} == {ir.DataType.INT8}


def part_of(model: ir.Model, node: ir.Node, operands: list[Array]) -> Array:
    """What a node gives for its first operands."""
    given = [value for value in node.inputs[: len(operands)] if value is not None]
    part = ir.convenience.extract(model.graph, given, node.outputs)
    cut = ir.Model(part, ir_version=model.ir_version, functions=list(model.functions.values()))
    feeds = {str(v.name): array for v, array in zip(given, operands, strict=True)}
    return run(cut, feeds)[0]


def fake_int8(model: ir.Model) -> None:
    """Round weights by row and their operands by token, in place; embedding and router stay."""
    router = next(n.inputs[0] for n in model.graph if n.op_type == "TopKRouter")
    for node in [n for n in model.graph if n.op_type in ("MatMul", "ExpertMatMul")]:
        value, weight = node.inputs[0], node.inputs[1 if node.op_type == "MatMul" else 2]
        if node.outputs[0] is router or value is None or weight is None:
            continue
        assert weight.const_value is not None
        columns = weight.const_value.numpy()
        step = np.abs(columns).max(axis=0) / 127
        fake = (np.rint(columns / step) * step).T.astype(np.float32)
        weight.const_value = as_lazy(ir.tensor(fake)).transpose()
        quantize = make_node(model, "QuantizeActivation", [value])
        wide = ir.node("Cast", [quantize.outputs[0]], {"to": 1})
        back = ir.node("Mul", [wide.outputs[0], quantize.outputs[1]])
        model.graph.insert_before(node, [quantize, wide, back])
        node.replace_input_with(0, back.outputs[0])


def divergence(found: Array, reference: Array) -> float:
    """Mean KL(reference | found) of logits."""
    p, q = (
        x - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)) - x.max(-1)[:, None]
        for x in (reference.astype(np.float64), found.astype(np.float64))
    )
    return float((np.exp(p) * (p - q)).sum(-1).mean())


def test_int8_loses_what_a_fake_quantization_loses() -> None:
    want = run_dense(expert_model(SHAPE, MIXED), TOKENS)
    fake = expert_model(SHAPE, MIXED)
    fake_int8(fake)
    step, _ = after(f"{FUSED},quantize-weights{{embedding=false}},fuse-norm-quantize")
    lost = divergence(run_dense(fake, TOKENS), want)
    assert 0 < divergence(logits(step), want) < 1.2 * lost


def test_gptq_rounds_experts_plainly() -> None:
    model = expert_model(SHAPE, MIXED)
    store = calibration_of(model)
    for linear in find_linears(model):
        store.put(weights_of(linear), INPUT_HESSIAN, np.eye(linear.weight.rows_shape[1]))
    records = pipeline_of(f"{FUSED},quantize-weights{{method=gptq}}").run(model)
    report = records[-1].report
    assert report.details["int8 per channel, gptq"] == 3
    assert report.details["int8 per channel, experts rounded plainly"] == 2


def test_bfloat16() -> None:
    model, records = after(f"{FUSED},cast-weights")
    assert records["cast-weights"].report.details["bfloat16, experts"] == 2
    assert kinds(model)["Bf16ExpertMatMul"] == 2
    want = run_dense(expert_model(SHAPE, MIXED), TOKENS)
    assert np.linalg.norm(logits(model) - want) / np.linalg.norm(want) < 0.02


def test_layer_formats_name_experts_too() -> None:
    model = expert_model(SHAPE, MIXED)
    options = {"bits": 4, "group_size": 32, "symmetric": False, "layer_bits": ("0.down=8",)}
    details = QuantizeWeights.from_options(options).run(model).details
    assert details["int8 per channel, experts"] == 1
    assert details["int4 groups of 32 asymmetric, experts"] == 1


@pytest.mark.parametrize(
    "name",
    [
        *("allocate-bits", "prune-weights", "prune-depth", "prune-heads", "prune-width"),
        "prune-to-budget",
    ],
)
def test_passes_without_a_place_for_experts_refuse_them(name: str) -> None:
    (one,) = pipeline_of(name).passes
    refused: Pass = type(one)(folder="f")  # type: ignore[call-arg]
    model = expert_model(SHAPE)
    with pytest.raises(UnsupportedError, match="does not know matmuls by experts") as caught:
        refused.requires(model)
    assert caught.value.where == f"pass {name}"
    assert "expertmatmul" in str(caught.value)


def test_adapters_skip_experts_by_name() -> None:
    model, _ = after(FUSED)
    report = AddAdapters(max=2).run(model)
    assert sum("experts take no adapters" in one for one in report.skipped) == 2
    spec = RaggedStep.read(model).adapters
    assert spec is not None
    names = [part.name for module in spec.modules for part in module.parts]
    assert "0.router.weight" in names
    assert not any("gate_up" in name or "down" in name for name in names)


@pytest.mark.parametrize("options", ["{format=nf4}"])
def test_stored_formats_leave_experts_float(options: str) -> None:
    _, records = after(f"{FUSED},quantize-weights{options}")
    skipped = records["quantize-weights"].report.skipped
    assert sum("experts are not stored in nf4: they stay float" in one for one in skipped) == 2


def test_rewrites_of_what_experts_read_are_left_and_say_why() -> None:
    report = PassReport()
    places = find_places(expert_model(SHAPE, MIXED), report)
    assert {place.kind for place in places} == {"norm", "values"}  # before attention, and its own
    assert any("its input has other readers than linear layers" in one for one in report.skipped)
    with pytest.raises(NotTurnableError, match="other readers than linear layers' own"):
        find_residual(expert_model(SHAPE, MIXED))
