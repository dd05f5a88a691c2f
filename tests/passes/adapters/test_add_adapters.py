"""`adapters`: every linear layer but the head gets room for LoRA adapters."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.forms.kv_pools import KVPools
from optc.ir.forms.ragged import RaggedStep
from optc.ir.sources import Source, sources_metadata
from optc.passes.adapters.add_adapters import AddAdapters
from optc.runtime.executable.adapter_spec import AdapterModule, AdapterPart, AdapterSpec
from tests.support.ir_text import Array, f32, model_of, nodes_text
from tests.support.ragged import run

SIGNATURE = "g (float[T,8] x, int32[R] logit_rows) => (float[R,5] logits)"
NODES = """
    qkv = MatMul (x, w_qkv)
    biased = Add (qkv, bias)
    t = Tanh (biased)
    picked = Gather <axis: int = 0> (t, logit_rows)
    o = MatMul (picked, w_o)
    logits = MatMul (o, w_head)"""
WEIGHTS = {"w_qkv": f32(8, 6), "bias": f32(6), "w_o": f32(6, 4), "w_head": f32(4, 5)}


def model(weights: dict[str, Array] = WEIGHTS, o: tuple[str, int] = ("R", 4)) -> ir.Model:
    built = model_of(SIGNATURE, NODES, weights)
    shapes = {"qkv": ("T", 6), "biased": ("T", 6), "o": o, "logits": ("R", 5)}
    for node in built.graph:
        for value in node.outputs:
            if value.name in shapes:
                value.shape = ir.Shape(shapes[value.name])
                value.type = ir.TensorType(ir.DataType.FLOAT)
    merged = sources_metadata([Source("q", 0, 4), Source("k", 4, 6)])
    built.graph.initializers["w_qkv"].metadata_props.update(merged)
    RaggedStep(KVPools((), ())).attach(built)
    return built


def adapted(**options: int) -> ir.Model:
    built = model()
    AddAdapters(**options).run(built)
    return built


def test_before_and_after() -> None:
    built = adapted(max=2, rank=3)
    assert nodes_text(built).splitlines() == [
        "qkv = MatMul (x, w_qkv)",
        "biased = Add (qkv, bias)",
        "biased.adapted = optc.AdapterMatMul <rank = 16, parts: string = 0,4>"
        " (biased, x, adapters, adapter_a.0, adapter_b.0)",
        "t = Tanh (biased.adapted)",
        "picked = Gather <axis = 0> (t, logit_rows)",
        "o = MatMul (picked, w_o)",
        "o.adapted = optc.AdapterMatMul <rank = 16, parts: string = 0>"
        " (o, picked, logit_adapters, adapter_a.1, adapter_b.1)",
        "logits = MatMul (o.adapted, w_head)",
    ]
    merged = AdapterModule(8, 6, (AdapterPart("q", 0, 4), AdapterPart("k", 4, 6)))
    single = AdapterModule(6, 4, (AdapterPart("w_o", 0, 4),))
    assert RaggedStep.read(built).adapters == AdapterSpec(2, 16, (merged, single))


def test_a_layer_as_wide_as_the_vocabulary_is_no_head() -> None:
    """As one of a trimmed vocabulary may be."""
    weights = WEIGHTS | {"w_o": f32(6, 5), "w_head": f32(5, 5)}
    built = model(weights, o=("R", 5))
    report = AddAdapters(max=1).run(built)
    assert report.details == {"linear layer": 2}
    modules = RaggedStep.read(built).adapters
    assert modules is not None
    assert [module.n for module in modules.modules] == [6, 5]
    assert nodes_text(built).splitlines()[-1] == "logits = MatMul (o.adapted, w_head)"


def test_a_layer_of_other_rows_hides_none_behind_it() -> None:
    built = model()
    built.graph[0].outputs[0].shape = ir.Shape(["B", 6])
    built.graph[1].outputs[0].shape = ir.Shape(["B", 6])
    report = AddAdapters(max=1).run(built)
    assert report.details == {"linear layer": 1}
    assert report.skipped == ["MatMul: its rows are B, neither T nor R"]
    modules = RaggedStep.read(built).adapters
    assert modules is not None
    assert [module.parts for module in modules.modules] == [(AdapterPart("w_o", 0, 4),)]
    assert "logit_adapters" in {value.name for value in built.graph.inputs}
    assert "adapters" not in {value.name for value in built.graph.inputs}


def oracle(x: Array, rows: Array, adapters: Array, pools: list[Array]) -> Array:
    """Each row with the weights of its own adapter merged, in float64."""
    a0, b0, a1, b1 = (pool.astype(np.float64) for pool in pools)
    out = []
    for index in rows:
        slot, weights = adapters[index], {k: w.astype(np.float64) for k, w in WEIGHTS.items()}
        if slot >= 0:
            weights["w_qkv"][:, :4] += a0[slot, :, :16] @ b0[slot, :, :4]
            weights["w_qkv"][:, 4:] += a0[slot, :, 16:] @ b0[slot, :, 4:]
            weights["w_o"] += a1[slot] @ b1[slot]
        t = np.tanh(x[index] @ weights["w_qkv"] + weights["bias"])
        out.append(t @ weights["w_o"] @ weights["w_head"])
    return np.array(out)


def test_numbers_are_those_of_merged_weights() -> None:
    built = adapted(max=3, rank=16)
    x, rows = f32(5, 8), np.array([4, 0, 2], np.int32)
    adapters = np.array([2, 0, -1, 1, 0], np.int32)
    pools = [0.3 * f32(*shape) for shape in ((3, 8, 32), (3, 16, 6), (3, 6, 16), (3, 16, 4))]
    names = ("adapter_a.0", "adapter_b.0", "adapter_a.1", "adapter_b.1")
    feeds = {"x": x, "logit_rows": rows, "adapters": adapters, "logit_adapters": adapters[rows]}
    got = run(built, {**feeds, **dict(zip(names, pools, strict=True))})[0]
    np.testing.assert_allclose(got, oracle(x, rows, adapters, pools), rtol=1e-4, atol=1e-4)


def test_without_an_adapter_nothing_changes() -> None:
    built = adapted(max=1, rank=16)
    x, rows = f32(3, 8), np.array([0, 2], np.int32)
    nobody = {"adapters": np.full(3, -1, np.int32), "logit_adapters": np.full(2, -1, np.int32)}
    pools = {
        str(v.name): f32(*(int(d) for d in v.shape))  # type: ignore[union-attr]
        for v in built.graph.inputs
        if str(v.name).startswith("adapter_")
    }
    got = run(built, {"x": x, "logit_rows": rows, **nobody, **pools})[0]
    np.testing.assert_array_equal(got, run(model(), {"x": x, "logit_rows": rows})[0])


@pytest.mark.parametrize("option", ["max", "rank"])
def test_options_out_of_range(option: str) -> None:
    with pytest.raises(InputError, match=f"{option}=0") as caught:
        AddAdapters(**{option: 0}).requires(model())
    assert caught.value.where == "pass adapters"


def test_the_report_states_the_room() -> None:
    report = AddAdapters(max=2, rank=17).run(model())
    assert report.facts == {"max": 2, "rank": 32}
    assert report.count == 2


def test_it_makes_room_for_eight_adapters_of_rank_sixteen_by_default() -> None:
    built = adapted()
    spec = RaggedStep.read(built).adapters
    assert spec is not None
    assert (spec.max, spec.rank) == (8, 16)


def test_the_bounds_of_the_options_are_allowed() -> None:
    assert (AddAdapters(max=256, rank=256).max, AddAdapters(max=1, rank=1).rank) == (256, 1)
    for options in ({"max": 257}, {"rank": 257}, {"max": 0}):
        with pytest.raises(InputError, match="from 1 to 256"):
            AddAdapters(**options)


def test_its_contract_is_checked_around_it() -> None:
    built = model()
    AddAdapters().requires(built)
    with pytest.raises(RuntimeError, match="adapters made no room"):
        AddAdapters().ensures(built)
    AddAdapters().run(built)
    AddAdapters().ensures(built)
    with pytest.raises(InputError, match="the model has adapters already"):
        AddAdapters().requires(built)


TURNED = "r = optc.BlockHadamard <block: int = 16, width: int = 64> (x) "
ROUNDED = "q, s = optc.QuantizeActivation <bits: int = 8> "
TURNS = "q, s = optc.QuantizeActivation <bits: int = 8, hadamard: int = 64, width: int = 64> "
MATMUL = " y = optc.QuantizedMatMul <bits: int = 8, group_size: int = 0> (q, s, w, scale)"
#: Nodes before a layer, and the blocks of the rotation that its operand comes in.
ROTATED = {
    "y = MatMul (x, w)": 0,
    f"{TURNED} y = MatMul (r, w)": 16,
    f"{TURNED} y = optc.Bf16MatMul (r, w)": 16,
    f"{ROUNDED} (x) {MATMUL}": 0,
    f"{TURNS} (x) {MATMUL}": 64,
    f"{TURNED} {ROUNDED} (r) {MATMUL}": 16,
}


@pytest.mark.parametrize("nodes", ROTATED)
def test_modules_state_the_rotation_of_what_they_read(nodes: str) -> None:
    """A of an adapter is rotated alike when it is loaded."""
    weights = {"w": f32(64, 6), "scale": f32(6), "head": f32(6, 5)}
    used = {name: array for name, array in weights.items() if name in f"{nodes} head"}
    signature = "g (float[T,64] x) => (float[T,5] logits)"
    built = model_of(signature, f"{nodes} logits = MatMul (y, head)", used)
    for node in built.graph:
        if node.outputs[0].name == "y":
            node.outputs[0].shape = ir.Shape(("T", 6))
    RaggedStep(KVPools((), ())).attach(built)
    AddAdapters(max=1).run(built)
    spec = RaggedStep.read(built).adapters
    assert spec is not None
    assert [module.hadamard for module in spec.modules] == [ROTATED[nodes]]
