"""Gates of engines: measured where an engine runs, on its lowered model where it does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import onnx_ir as ir
import pytest
from msgspec import structs

from optc.artifact.manifest import TokenizerEntry
from optc.compiling.judging import engine_gates
from optc.compiling.judging.engine_gates import EngineGates, GateContext, lowered_runner, unmeasured
from optc.errors import InputError, UnsupportedError
from optc.proof.gates import measure
from optc.proof.gates.measure import GateReport
from optc.proof.gates.measure import judge as verdict
from optc.proof.gates.speed import SpeedFigures
from optc.proof.reference.blockwise import BlockwiseReference
from optc.runtime.executable.executable import Executable, StepInterface
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import parse_target
from tests.artifact.toy import toy_engine
from tests.runtime.support.toy import ToyExecutable, toy_spec
from tests.support.chats import PLAIN, small_tokenizer
from tests.support.dense_models import dense_model as small_model
from tests.support.models import Dense, dense_model
from tests.support.recomputing_engine import RecomputingEngine
from tests.support.stub import Runner, StubBackend

BOUNDS = {"kl_mean": 0.5, "perplexity": None, "decode_speedup": None}
OWN = {*measure.QUALITY_GATES, *measure.SPEED_GATES}
Backends = dict[str, StubBackend]
FAST = SpeedFigures(8, 4, 2, 1.0, 1.0, 1.0, 1.0, "whole", 1.0, 1.0, (1.0, 1.0), (1.0, 1.0))


class Opened(ToyExecutable):
    """Remembers all that were opened."""

    all: ClassVar[list[Opened]] = []

    def __init__(self, spec: StepInterface) -> None:
        super().__init__(spec)
        self.all.append(self)


@pytest.fixture
def measured(backends: Backends, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is measured: KL is half its bound, speed where it is wanted; the calls are returned."""
    calls: list[dict[str, Any]] = []

    def fake(
        reference: BlockwiseReference,
        executable: Executable,
        windows: measure.EvalWindows,
        bounds: Mapping[str, float | None],
        **options: Any,
    ) -> GateReport:
        given = {"reference": reference, "windows": windows, "bounds": bounds}
        calls.append({"executable": executable, **given, **options})
        values = {"kl_mean": 0.25, "perplexity": 7.0}
        values |= {"decode_speedup": 2.0} if options["speed"] else {}
        gates = (
            verdict(n, values.get(n), bound, "no speed") for n, bound in bounds.items() if n in OWN
        )
        return GateReport(tuple(gates), {"tokens": 64})

    def load(
        self: object, folder: Path, spec: StepInterface, data: Any, threads: int
    ) -> Executable:
        assert folder == Path("artifact/engines/e")
        return Opened(spec)

    Opened.all = []
    monkeypatch.setattr(measure, "measure_gates", fake)
    monkeypatch.setattr(StubBackend, "load", load)
    monkeypatch.setattr(engine_gates, "this_machine", lambda: Machine(frozenset(), (), "none"))
    return calls


def context(**more: Any) -> GateContext:
    return GateContext(dense_model(Dense(windows=(0,))), BOUNDS, Path("artifact"), **more)


def entry(target: str = "native") -> Any:
    spec = toy_spec(vocab=61)
    backend = "aot" if target.startswith("cuda") else "tvm"
    return structs.replace(
        toy_engine("e", replace(parse_target(target), features=())), backend=backend, interface=spec
    )


def test_an_engine_that_runs_is_measured_and_closed(measured: list[dict[str, Any]]) -> None:
    with EngineGates(context(max_ram_bytes=7)) as gates:
        found = gates.judge(entry())
        again = gates.judge(entry())
    values = [(g.name, g.value, g.passed, g.measured_on, g.engine) for g in found.gates]
    assert values == [
        ("kl_mean", 0.25, True, "engine", "e"),
        ("perplexity", 7.0, None, "engine", "e"),
        ("decode_speedup", 2.0, None, "engine", "e"),
    ]
    facts = {"tokens": 64, "answers": {"not_measured": "the model has no chat template"}}
    assert (found.facts, found.warnings, again) == (facts, (), found)
    first, second = measured
    assert first["reference"] is second["reference"], "the engines share one reference"
    assert (first["max_ram_bytes"], first["bounds"]) == (7, BOUNDS)
    assert len(Opened.all) == 2
    assert all(executable.closed for executable in Opened.all)


def test_it_is_closed_when_measuring_fails(
    measured: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> GateReport:
        raise InputError("no text")

    monkeypatch.setattr(measure, "measure_gates", fail)
    with EngineGates(context()) as gates, pytest.raises(InputError, match="no text"):
        gates.judge(entry())
    assert [executable.closed for executable in Opened.all] == [True]


def test_the_reference_is_opened_once_it_is_needed_and_closed_at_the_end(
    measured: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class Reference:
        def __init__(self, model: ir.Model, threads: int, kept_bytes: int) -> None:
            assert kept_bytes > 0, "a small model stays open"
            events.append("open")

        def close(self) -> None:
            events.append("close")

    monkeypatch.setattr(engine_gates, "BlockwiseReference", Reference)
    with EngineGates(context()) as gates:
        gates.judge(entry("cuda:sm_89"))
        assert events == []
        gates.judge(entry())
    assert events == ["open", "close"]


def test_an_engine_that_cannot_run_has_a_reason_for_every_gate(
    measured: list[dict[str, Any]],
) -> None:
    with EngineGates(context()) as gates:
        found = gates.judge(entry("cuda:sm_89"))
    reason = "it needs a CUDA device: none"
    assert found == unmeasured(BOUNDS, reason, "e")
    assert {(g.value, g.passed, g.measured_on, g.reason, g.engine) for g in found.gates} == {
        (None, None, "none", reason, "e")
    }
    assert [(g.name, g.bound) for g in found.gates] == list(BOUNDS.items())
    assert measured == []


def test_what_it_was_lowered_to_is_judged_in_its_stead(
    measured: list[dict[str, Any]], backends: Backends, tmp_path: Path
) -> None:
    lowered = tmp_path / "lowered.onnx"
    lowered.write_bytes(b"lowered")
    backends["runner"] = Runner("runner")
    assert lowered_runner() is backends["runner"]
    with EngineGates(context()) as gates:
        found = gates.judge(entry("cuda:sm_89"), lowered)
    on = [(g.name, g.measured_on, g.value) for g in found.gates if g.measured_on != "none"]
    assert on == [("kl_mean", "lowered-onnx", 0.25), ("perplexity", "lowered-onnx", 7.0)]
    assert len(found.gates) == len(BOUNDS) + 2, "those of the engine stay open"
    assert found.facts["lowered-onnx"]["tokens"] == 64
    assert list(found.facts) == ["lowered-onnx"]
    assert [call["speed"] for call in measured] == [False], "it is no engine whose speed counts"


def test_a_lowered_model_that_cannot_be_judged_is_a_warning(
    measured: list[dict[str, Any]], backends: Backends, tmp_path: Path
) -> None:
    with EngineGates(context()) as gates:
        found = gates.judge(entry("cuda:sm_89"), tmp_path / "lowered.onnx")
    told = "the model that e was lowered to was not judged: "
    assert found.warnings == (f"{told}no installed backend runs lowered ONNX models",)

    class Unable(Runner):
        def open_lowered(self, model: Path, spec: StepInterface, threads: int) -> Executable:
            raise UnsupportedError("an operator is missing", where="Loop")

    backends["runner"] = Unable("runner")
    with EngineGates(context()) as gates:
        found = gates.judge(entry("cuda:sm_89"), tmp_path / "lowered.onnx")
    assert found.warnings == (f"{told}Loop: an operator is missing",)
    assert found.facts == {}
    assert all(gate.measured_on == "none" for gate in found.gates)


def test_without_a_tokenizer_random_ids_are_scored(
    measured: list[dict[str, Any]], tmp_path: Path
) -> None:
    with EngineGates(context()) as gates:
        gates.judge(entry())
    windows = measured[0]["windows"]
    assert int(windows.ids.max()) < 61
    assert windows.ids.shape[1] - 1 == 64, "no longer than the engine's context"
    with (
        EngineGates(context(eval_text=tmp_path / "t.txt")) as gates,
        pytest.raises(InputError, match=r"the model has no tokenizer\.json"),
    ):
        gates.judge(entry())


ANSWERS = {"kl_mean": 0.5, "answer_kl_mean": 0.5, "decision_flips": 0.0, "margin_factor": None}
TALK = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho."}]}


def talking(folder: Path, template: str) -> TokenizerEntry:
    """The small tokenizer with a template, as files of an artifact."""
    (folder / "tokenizer").mkdir(parents=True)
    small_tokenizer().save(str(folder / "tokenizer/tokenizer.json"))
    (folder / "t.jinja").write_text(template)
    return TokenizerEntry(("tokenizer/tokenizer.json",), None, (3,), False, chat_template="t.jinja")


@pytest.mark.parametrize("flips", [0, 1])
def test_conversations_are_judged_beside_prose(
    backends: Backends, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flips: int
) -> None:
    """Through the whole of the gates, with an engine that plants a flip or none."""
    model = small_model(2)

    def load(self: object, *_: object) -> Executable:
        disturb = (lambda logits: -logits) if flips else (lambda logits: logits)
        return RecomputingEngine(model, disturb=disturb, max_context=128, max_rows=64)

    monkeypatch.setattr(StubBackend, "load", load)
    monkeypatch.setattr(engine_gates, "this_machine", lambda: Machine(frozenset(), (), "none"))
    monkeypatch.setattr(measure, "measure_speed", lambda *_, **__: FAST)
    text = tmp_path / "t.jsonl"
    text.write_text("".join(json.dumps(TALK) + "\n" for _ in range(2)))
    entries = talking(tmp_path / "a", PLAIN)
    made = GateContext(model, ANSWERS, tmp_path / "a", entries, text)
    spec = toy_spec(vocab=97)
    with EngineGates(made) as gates:
        found = gates.judge(
            structs.replace(entry(), interface=structs.replace(spec, max_context=128))
        )
    values = {gate.name: gate for gate in found.gates}
    assert values["decision_flips"].passed is (flips == 0)
    assert values["answer_kl_mean"].value == values["kl_mean"].value, "there is no prose"
    names = [gate.name for gate in found.gates]
    assert names[-4:-2] == ["decision_flips", "margin_factor"], "speed is last"
    answers = found.facts["answers"]
    assert answers["text"] == "t.jsonl"
    assert answers["decisions"]["count"] == 4
    assert found.warnings == ()


def test_gates_of_answers_do_not_apply_without_a_template(
    backends: Backends, measured: list[dict[str, Any]]
) -> None:
    made = replace(context(), bounds={**BOUNDS, "decision_flips": 0.0, "margin_factor": None})
    with EngineGates(made) as gates:
        found = gates.judge(entry())
    flips = next(gate for gate in found.gates if gate.name == "decision_flips")
    assert (flips.value, flips.bound, flips.passed) == (None, None, None), "neither held nor failed"
    assert flips.reason == "the model has no chat template"
    assert found.warnings == (
        "gates that do not apply: decision_flips: the model has no chat template",
    )


def test_nor_do_they_where_the_engine_cannot_run(measured: list[dict[str, Any]]) -> None:
    made = replace(context(), bounds={"kl_mean": 0.5, "decision_flips": 0.0})
    with EngineGates(made) as gates:
        found = gates.judge(entry("cuda:sm_89"))
    assert [gate.name for gate in found.gates] == ["kl_mean"]
    files = ("tokenizer/tokenizer.json",)
    talking = TokenizerEntry(files, None, (3,), False, chat_template="t.jinja")
    with EngineGates(replace(made, tokenizer=talking)) as gates:
        found = gates.judge(entry("cuda:sm_89"))
    assert [gate.name for gate in found.gates] == ["kl_mean", "decision_flips"]
