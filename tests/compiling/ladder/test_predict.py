"""Predictions of rungs: by the model, whatever recipes are called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx_ir as ir
import pytest

from optc import registry
from optc.backend import NATIVE, BuildOptions, Support
from optc.compiling.ladder.options import resolve_ladder
from optc.compiling.ladder.predict import Predictions, predict_rungs
from optc.errors import InputError
from optc.proof.roofline.ceilings import Ceiling
from optc.proof.roofline.costs import KernelCost, StepCosts
from optc.proof.roofline.estimate import EngineEstimate
from optc.system.hardware.target import Target
from optc.system.options import CompileOptions
from tests.runtime.support.toy import toy_spec
from tests.support.dense_models import V, dense_model
from tests.support.stub import StubBackend

LADDER = ("fp32", "bf16-fused", "int8-fused", "int4-fast")


class Estimating(StubBackend):
    """Knows the bytes of weights; has no kernel for one operator, where it is told so."""

    refused = ""

    def supports(self, node: ir.Node, target: Target) -> Support:
        if node.op_type == self.refused:
            return Support("unsupported", "there is no such kernel")
        return NATIVE

    def estimate(self, model: ir.Model, target: Target, options: BuildOptions) -> EngineEstimate:
        values = model.graph.initializers.values()
        size = sum(value.const_value.nbytes for value in values if value.const_value is not None)
        costs = StepCosts("int8", {"all": KernelCost(1, "int8", {"1": float(size)}, {"T": 8.0})})
        spec = toy_spec(max_context=options.max_context, vocab=V)
        return EngineEstimate(spec, size, costs, file_bytes=size, compile_s=2.0)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> StubBackend:
    found = Estimating("tvm")
    monkeypatch.setattr(registry, "backend_names", lambda: ("tvm",))
    monkeypatch.setattr(registry, "backend", lambda name: found)
    return found


@pytest.fixture
def predicted(model: Path, backend: StubBackend, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is predicted of recipes; other options by name."""
    imported = SimpleNamespace(max_context=64, tokenizer_files=[model / "tokenizer.json"])
    dense = dense_model(2)

    def call(ceilings: dict[str, Ceiling] | None = None, **more: Any) -> Predictions:
        asked = CompileOptions(recipe="auto", **{"ladder": LADDER, **more})
        return predict_rungs(cast(Any, imported), resolve_ladder(model, asked), ceilings, dense)

    return call


def test_fewer_bytes_are_faster_and_smaller(predicted: Callable[..., Predictions]) -> None:
    for objective in ("decode", "size", "memory"):
        found = predicted(objective=objective)
        assert [one.recipe for one in found.rungs] == list(reversed(LADDER))
        assert found.left_out == {}
    paces = [one.prediction.decode_tokens_per_s for one in found.rungs]
    assert paces == sorted(paces, reverse=True)
    assert all(one.prediction.compile_s > 0 for one in found.rungs)
    assert found.rungs[-1].promised["kl_mean"] == 1e-6


def test_memory_counts_keys_and_values_of_the_whole_context(
    predicted: Callable[..., Predictions],
) -> None:
    short, long = (
        {one.recipe: one.prediction for one in predicted(max_context=length).rungs}
        for length in (32, 64)
    )
    for name in LADDER:
        kv = long[name].memory_bytes - short[name].memory_bytes
        assert kv > 0
        assert short[name].memory_bytes == short[name].weight_bytes + kv
    # blocks are whole
    (block,) = [r.prediction for r in predicted(max_context=33, ladder=("fp32",)).rungs]
    assert block.memory_bytes == long["fp32"].memory_bytes
    assert (long["fp32"].memory_bytes - short["fp32"].memory_bytes) == 2 * (
        long["bf16-fused"].memory_bytes - short["bf16-fused"].memory_bytes
    )


def test_measured_ceilings_take_the_place_of_assumed_ones(
    predicted: Callable[..., Predictions],
) -> None:
    ceilings = {name: Ceiling(1e3, 1e3) for name in ("read", "int8")}
    usual, slow = predicted(), predicted(ceilings)
    assert slow.rungs[0].prediction.decode_tokens_per_s < 1
    assert usual.rungs[0].prediction.decode_tokens_per_s > 1


def test_a_recipe_of_which_a_node_has_no_kernel_is_left_out(
    predicted: Callable[..., Predictions], backend: Estimating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "refused", "AddRMSNormQuantize")
    found = predicted()
    reason = "tvm-native: optc::AddRMSNormQuantize: there is no such kernel"
    assert found.left_out == dict.fromkeys(("int8-fused", "int4-fast"), reason)
    assert {one.recipe for one in found.rungs} == {"bf16-fused", "fp32"}
    with pytest.raises(InputError, match="there is no such kernel"):
        predicted(ladder=["int8-fused"])


def test_a_backend_without_estimates_is_ordered_by_bytes(
    predicted: Callable[..., Predictions], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = StubBackend("tvm")
    monkeypatch.setattr(registry, "backend", lambda name: plain)
    found = predicted()
    assert [one.recipe for one in found.rungs] == list(reversed(LADDER))
    assert {one.prediction.decode_tokens_per_s for one in found.rungs} == {None}
    assert {one.prediction.compile_s for one in found.rungs} == {0.0}


def test_the_dense_form_stays_as_it_is(predicted: Callable[..., Predictions]) -> None:
    found = predicted()
    operators = {node.op_type for node in found.dense.graph}
    assert "Attention" in operators
    assert "PagedAttention" not in operators
