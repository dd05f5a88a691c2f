"""What is broken on purpose is named; what is not broken is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.weights import LazyWeight
from optc.proof.gates.bisect import bisect as module
from optc.proof.gates.bisect.bisect import Bisection, bisect
from optc.proof.gates.bisect.stages import Stage
from optc.proof.reference.text import EvalWindows
from tests.support.models import Dense, dense_model
from tests.support.pipelines import pipeline_of

SHAPE = Dense(windows=(0, 0, 0, 0), hidden=64, inner=64)
IDS = np.random.default_rng(5).integers(0, 61, (2, 33)).astype(np.int32)
PASSES = "fuse-gate-up,kv-cache,fuse-residual-norm,quantize-weights{bits=8}"
Break = Callable[[ir.Model], None]


def stages_of(passes: str = PASSES, **broken: Break) -> list[Stage]:
    """The stages of a pipeline; ``broken`` does something to the model behind a pass."""
    model = dense_model(SHAPE)
    stages = [Stage("canonicalize", model.clone())]

    def keep(record, current: ir.Model) -> None:
        broken.get(record.name.replace("-", "_"), lambda model: None)(current)
        stages.append(Stage(record.name, current.clone()))

    pipeline_of(passes).run(model, [keep])
    return stages


def bisected(stages: list[Stage]) -> Bisection:
    return bisect(stages, EvalWindows(IDS, "a text", "two windows"), threads=1)


def scaled(name: str, factor: float) -> Break:
    """Multiplies an initializer."""

    def change(model: ir.Model) -> None:
        value = model.graph.initializers[name]
        tensor = value.const_value
        assert tensor is not None
        if isinstance(tensor, LazyWeight):
            value.const_value = tensor.map_rows(
                lambda rows: (factor * rows).astype(rows.dtype), tensor.dtype
            )
        else:
            value.const_value = ir.tensor(factor * tensor.numpy(), name=name)

    return change


@pytest.mark.parametrize(
    ("layer", "passes"), [(0, PASSES), (3, "kv-cache,quantize-weights{bits=8}")]
)
def test_a_broken_scale(layer: int, passes: str) -> None:
    """Layers are those of the dense form, whichever pass comes first."""
    broken = scaled(f"{layer}.o.weight.scale", 1.4)
    found = bisected(stages_of(passes, quantize_weights=broken)).to_json()
    assert (found["pass"], found["cause"]) == ("quantize-weights", "weight")
    assert (found["tensor"], found["block"]) == (f"{layer}.o.weight", layer)
    assert found["outlier"]
    assert found["kl_restored"] < found["kl_after"] / 2
    assert found["tokens"] == IDS[:, 1:].size


def test_a_broken_scale_of_the_head_which_has_no_peer_of_its_kind() -> None:
    found = bisected(stages_of(quantize_weights=scaled("head.weight.scale", 1.4))).to_json()
    assert (found["tensor"], found["value"]) == ("head.weight", "logits")
    assert found["outlier"]


def test_a_weight_that_a_pass_without_rounding_spoils() -> None:
    """Gate and up are one weight; the value that shows it is behind the activation."""
    name = "1.gate+up.weight"
    found = bisected(stages_of(fuse_gate_up=scaled(name, 1.3))).to_json()
    assert (found["pass"], found["cause"], found["tensor"]) == ("fuse-gate-up", "weight", name)
    assert (found["block"], found["restored_db"]) == (1, 100)
    assert found["kl_restored"] < 1e-9 < found["kl_before"] + found["kl_after"]


def test_a_fusion_that_is_wrong_in_every_layer() -> None:
    """No layer stands out, so the first is named."""

    def change(model: ir.Model) -> None:
        for node in model.graph:
            if node.op_type == "AddRMSNorm":
                scale = node.inputs[2]
                assert scale is not None
                scaled(str(scale.name), 1.5)(model)

    found = bisected(stages_of(fuse_residual_norm=change)).to_json()
    assert (found["pass"], found["cause"]) == ("fuse-residual-norm", "node")
    assert (found["operator"], found["block"]) == ("optc::AddRMSNorm", 0)
    assert found["sqnr_db"] == pytest.approx(6.02, abs=0.01)
    assert not found["outlier"]


def test_rounding_of_activations_is_a_cause_of_its_own() -> None:
    """Weights that int8 has exactly: all that is lost is the activations'."""
    model = dense_model(SHAPE)
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, LazyWeight) and tensor.transposed:
            value.const_value = tensor.map_rows(_signs, tensor.dtype)
    stages = [Stage("canonicalize", model.clone())]
    pipeline = pipeline_of("kv-cache,quantize-weights{bits=8,embedding=false}")
    pipeline.run(model, [lambda record, now: stages.append(Stage(record.name, now.clone()))])
    found = bisected(stages).to_json()
    assert (found["pass"], found["cause"]) == ("quantize-weights", "activation")
    assert (found["restored_db"], found["kl_restored"]) == (None, None)


def _signs(rows: np.ndarray) -> np.ndarray:
    return (np.sign(rows) / 8).astype(np.float32)


def test_nothing_is_broken() -> None:
    found = bisected(stages_of("fuse-gate-up,kv-cache,fuse-residual-norm")).to_json()
    assert found["pass"] is found["node"] is found["tensor"] is found["kl_before"] is None
    assert found["kl_after"] < 1e-9
    assert found["suspects"] == []
    assert found["sqnr_by_layer"] == [100] * 4
    alone = bisected([Stage("canonicalize", dense_model(SHAPE))]).to_json()
    assert (alone["pass"], [entry["kl"] for entry in alone["passes"]]) == (None, [0.0])


def test_the_last_layer_is_compared_before_a_norm_that_is_fused_with_rounding() -> None:
    passes = "kv-cache,quantize-weights{bits=8},fuse-norm-quantize"
    by_layer = bisected(stages_of(passes)).to_json()["sqnr_by_layer"]
    assert len(by_layer) == 4
    assert all(20 < decibels < 40 for decibels in by_layer)


def test_several_broken_layers_are_listed() -> None:
    def change(model: ir.Model) -> None:
        scaled("1.o.weight.scale", 2.0)(model)
        scaled("2.down.weight.scale", 1.5)(model)

    found = bisected(stages_of(quantize_weights=change)).to_json()
    assert found["tensor"] == "1.o.weight"
    assert [suspect["sqnr_db"] < 10 for suspect in found["suspects"]] == [True]


def test_logits_of_large_vocabularies_are_of_fewer_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []

    def stop(stages: object, tokens: np.ndarray, *more: object) -> None:
        seen.append(tokens.shape)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "compare_stages", stop)
    windows = EvalWindows(np.zeros((9, 100), np.int32), "", "")
    model = dense_model(dataclasses.replace(SHAPE, windows=(0,)))
    for limit in (1 << 30, 4 * 61 * 130, 1):
        monkeypatch.setattr(module, "LOGIT_BYTES", limit)
        with pytest.raises(KeyboardInterrupt):
            bisect([Stage("a", model)], windows, threads=1)
    assert seen == [(4, 64), (2, 64), (1, 32)]


def test_what_passes_have_made_belongs_to_the_layer_of_its_inputs() -> None:
    first, *_, last = stages_of()
    blocks = module._blocks(first.model, last.model)
    dense = {str(value.name) for node in first.model.graph for value in node.outputs}
    made = [
        (blocks.get(str(value.name)), [blocks.get(str(one.name), -1) for one in node.inputs if one])
        for node in last.model.graph
        for value in node.outputs
        if str(value.name) not in dense
    ]
    placed = [(block, inputs) for block, inputs in made if max(inputs, default=-1) >= 0]
    assert len(placed) > 4
    assert all(block == max(inputs) for block, inputs in placed)
    assert set(blocks.values()) == {0, 1, 2, 3}
