"""Gates of answers through an engine: a small model with a chat template, and planted flips."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.proof.conversations.conversation import Conversation
from optc.proof.conversations.scored import ScoredConversations, scored_conversations
from optc.proof.gates.answers import score
from optc.proof.gates.answers.measure import (
    AnswerReport,
    answer_perplexity,
    measure_answers,
    not_applicable,
)
from optc.proof.gates.answers.score import AnswerReference
from optc.proof.gates.measure import ANSWER_GATES
from optc.proof.reference.blockwise import BlockwiseReference
from tests.proof.gates.test_divergence import log_softmax
from tests.proof.reference.test_blockwise import whole_logits
from tests.support.chats import call, chat, conversation, small_tokenizer, tool
from tests.support.dense_models import V, dense_model
from tests.support.recomputing_engine import RecomputingEngine

BOUNDS = {"answer_kl_mean": 1e-6, "decision_flips": 0.0, "margin_factor": 0.9}


@pytest.fixture(scope="module")
def model() -> ir.Model:
    return dense_model(2)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> ScoredConversations:
    tools = (tool("look", side={"enum": ["north", "south", "east"]}), tool("wait"))
    messages = ({"role": "user", "content": "hi"}, call("look", side="south"))
    some = [
        Conversation(messages, tools, {}, "t.jsonl:1"),
        conversation("hi", "ho there", "and?", "no."),
        conversation("a", "b"),
    ]
    file: Path = tmp_path_factory.mktemp("t") / "tokenizer.json"
    small_tokenizer().save(str(file))
    return scored_conversations(
        some,
        chat(),
        vocab_size=V,
        max_context=512,
        affordable=10**6,
        source="t.jsonl",
        tokenizer_file=file,
    )


def engine(
    model: ir.Model, disturb: Callable[[Any], Any] = lambda logits: logits
) -> RecomputingEngine:
    return RecomputingEngine(model, disturb=disturb, max_context=512, max_rows=64, max_logit_rows=9)


def measured(
    model: ir.Model, given: ScoredConversations, executable: RecomputingEngine
) -> AnswerReport:
    reference = BlockwiseReference(model, 1)
    try:
        return measure_answers(AnswerReference(reference, given), executable, BOUNDS)
    finally:
        reference.close()


def test_an_exact_engine_passes(model: ir.Model, given: ScoredConversations) -> None:
    report = measured(model, given, engine(model))
    assert [gate.name for gate in report.gates] == list(ANSWER_GATES)
    values = {gate.name: gate.value for gate in report.gates}
    assert values["answer_kl_mean"] < 1e-9
    assert values["answer_top1_agreement"] == 1
    assert values["decision_flips"] == 0
    assert values["margin_factor"] == pytest.approx(1, abs=1e-4)
    assert {g.name for g in report.gates if g.passed} == set(BOUNDS)
    assert {g.passed for g in report.gates} == {True, None}
    figures = report.figures
    assert figures["tokens"] == given.tokens
    assert figures["decisions"]["count"] == sum(len(one.decisions) for one in given.sequences)
    assert (figures["text"], figures["convention"]) == ("t.jsonl", given.convention)


@pytest.mark.parametrize("waiting", [1, 64 << 20], ids=["chunk by chunk", "at once"])
def test_only_what_is_said_is_scored_whatever_waits_together(
    model: ir.Model,
    given: ScoredConversations,
    monkeypatch: pytest.MonkeyPatch,
    waiting: int,
) -> None:
    monkeypatch.setattr(score, "WAITING_BYTES", waiting)
    report = measured(model, given, engine(model, lambda logits: 1.3 * logits))
    expected = []
    for one in given.sequences:
        z = whole_logits(model, one.ids[None, :-1])[0][one.rows]
        p, q = log_softmax(z), log_softmax(1.3 * z)
        expected.append((np.exp(p) * (p - q)).sum(axis=1))
    kl = np.concatenate(expected)
    found = {gate.name: gate.value for gate in report.gates}
    assert found["answer_kl_mean"] == pytest.approx(kl.mean(), rel=1e-4)
    assert found["answer_kl_p99"] == pytest.approx(np.percentile(kl, 99), rel=1e-4)
    assert found["margin_factor"] == pytest.approx(1.3, rel=1e-4)
    assert report.compared.divergence.kl_mean == found["answer_kl_mean"]
    worst = report.figures["worst_contexts"][0]
    assert worst["kl"] == pytest.approx(kl.max(), rel=1e-4)
    one = given.sequences[worst["window"]]
    assert one.said[worst["position"] + 1], "it is said by the assistant"


def planted(
    model: ir.Model, given: ScoredConversations, kind: str
) -> tuple[RecomputingEngine, Any]:
    """An engine that takes another option in the first firm decision of a kind, and nothing else
    otherwise; and the decision."""
    for one in given.sequences:
        logits = whole_logits(model, one.ids[None, :-1])[0]
        for decision in one.decisions:
            if decision.kind != kind:
                continue
            row = logits[decision.place - 1]
            named = [t for o in decision.options for t in o.tokens]
            best = [
                max(o.tokens, key=row.__getitem__)
                if o.tokens
                else int(np.where(np.isin(np.arange(V), named), -np.inf, row).argmax())
                for o in decision.options
            ] or np.argsort(-row)[:2].tolist()
            first, second = sorted(best, key=row.__getitem__)[::-1][:2]
            if row[first] - row[second] <= 0.1:
                continue

            def swap(rows: np.ndarray, row=row, first=first, second=second) -> np.ndarray:
                rows = rows.copy()
                same = np.abs(rows - row).max(axis=1) < 1e-4
                rows[same, first], rows[same, second] = rows[same, second], rows[same, first]
                return rows

            return engine(model, swap), decision
    raise AssertionError(f"no firm decision of the kind {kind}")


@pytest.mark.parametrize("kind", ["begin", "call", "value", "end"])
def test_a_planted_flip_fails_the_gate_and_is_shown(
    model: ir.Model, given: ScoredConversations, kind: str
) -> None:
    executable, decision = planted(model, given, kind)
    report = measured(model, given, executable)
    flips = next(gate for gate in report.gates if gate.name == "decision_flips")
    assert flips.value >= 1
    assert flips.passed is False
    worst = report.figures["decisions"]["worst"][0]
    assert worst["flipped"]
    assert f": {worst['where']}, {worst['about'] or worst['kind']}: " in flips.reason
    assert flips.reason.startswith(f"{flips.value:g} is above the bound 0: t.jsonl:1, ")
    shown = [(one["kind"], one["about"]) for one in report.figures["decisions"]["worst"]]
    assert (decision.kind, decision.about) in shown
    assert report.figures["decisions"]["by_kind"][kind]["flips"] >= 1


def test_an_engine_that_gives_no_numbers_fails(model: ir.Model, given: ScoredConversations) -> None:
    report = measured(model, given, engine(model, lambda logits: np.full_like(logits, np.nan)))
    failed = {gate.name for gate in report.gates if gate.passed is False}
    assert {"answer_kl_mean", "decision_flips"} <= failed


def test_the_reference_runs_once_for_several_engines(
    model: ir.Model, given: ScoredConversations, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[int, ...]] = []
    run = BlockwiseReference.run
    monkeypatch.setattr(
        BlockwiseReference, "run", lambda self, ids: runs.append(ids.shape) or run(self, ids)
    )
    reference = BlockwiseReference(model, 1)
    answers = AnswerReference(reference, given)
    for _ in range(2):
        measure_answers(answers, engine(model), {})
    reference.close()
    lengths = sorted(len(one.ids) - 1 for one in given.sequences)
    assert sum(count for count, _ in runs) == len(lengths)
    assert len(runs) > 1, "long and short ones are not padded to one length"
    assert all(size in lengths for _, size in runs)


def test_perplexity_without_a_reference(model: ir.Model, given: ScoredConversations) -> None:
    found = answer_perplexity(engine(model), given)
    alone = measured(model, given, engine(model)).figures
    assert found["tokens"] == given.tokens
    assert found["perplexity"] == pytest.approx(alone["perplexity"], rel=1e-5)


def test_gates_that_do_not_apply_have_a_reason_and_no_bound() -> None:
    found = not_applicable({"kl_mean": 1.0, **BOUNDS}, "no template")
    assert [gate.name for gate in found] == [name for name in ANSWER_GATES if name in BOUNDS]
    assert {(g.value, g.bound, g.passed, g.reason) for g in found} == {
        (None, None, None, "no template")
    }
