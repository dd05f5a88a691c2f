"""Gates and reasons in one sentence."""

from __future__ import annotations

from optc.compiling.judging.gates_text import gates_text
from optc.proof.gates.measure import GateResult


def gate(name: str, reason: str, engine: str = "a", measured_on: str = "none") -> GateResult:
    return GateResult(name, None, 1.0, None, measured_on, reason, engine)


def test_gates_of_an_engine_that_have_one_reason_stand_together() -> None:
    gates = [
        gate("kl_mean", "no GPU"),
        gate("kl_p99", "too slow"),
        gate("top1_agreement", "no GPU"),
        gate("kl_mean", "no GPU", engine="b"),
    ]
    assert gates_text(gates, several=True) == (
        "a: kl_mean, top1_agreement: no GPU; a: kl_p99: too slow; b: kl_mean: no GPU"
    )


def test_a_sole_engine_is_not_named() -> None:
    gates = [gate("kl_mean", "no GPU"), gate("kl_p99", "no GPU")]
    assert gates_text(gates, several=False) == "kl_mean, kl_p99: no GPU"
    assert gates_text([], several=False) == ""


def test_what_was_measured_on_the_lowered_model_says_so() -> None:
    gates = [gate("kl_mean", "bad"), gate("kl_mean", "bad", measured_on="lowered-onnx")]
    assert gates_text(gates, several=False) == "kl_mean, kl_mean (lowered ONNX): bad"
