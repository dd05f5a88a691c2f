"""The measures of text generation are the only list of gates; other tables follow from them."""

from __future__ import annotations

from optc import registry
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.proof.gates import measure


def test_it_is_installed() -> None:
    assert registry.tasks()["text-generation"] is TEXT_GENERATION
    assert TEXT_GENERATION.by_name.keys() <= registry.measures().keys()


def test_every_gate_is_of_a_source_that_gates_measure() -> None:
    measured = measure.QUALITY_GATES + measure.ANSWER_GATES + measure.SPEED_GATES
    assert measured == TEXT_GENERATION.gates
    assert len({*TEXT_GENERATION.gates}) == 16


def test_values_that_must_not_exceed_their_bound() -> None:
    upper = {one.name for one in TEXT_GENERATION.measures if one.upper}
    assert upper == {
        *("kl_mean", "kl_p99", "kl_max", "perplexity", "perplexity_ratio", "copy_nll_added"),
        *("answer_kl_mean", "answer_kl_p99", "decision_flips"),
    }


def test_values_of_an_engine_that_loses_nothing() -> None:
    assert {one.name for one in TEXT_GENERATION.measures if one.ideal == 1} == {
        *("top1_agreement", "top5_agreement", "perplexity_ratio"),
        *("answer_top1_agreement", "margin_factor"),
    }
    assert {one.name for one in TEXT_GENERATION.measures if one.ideal is None} == {
        *("perplexity", "common_continuation", "prefill_speedup", "decode_speedup")
    }
