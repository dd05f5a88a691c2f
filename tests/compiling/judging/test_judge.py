"""The verdict on a compile: which gates forbid the artifact."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from optc.compiling.building.built_engine import BuiltEngine
from optc.compiling.judging import engine_gates
from optc.compiling.judging.engine_gates import EngineVerdict
from optc.compiling.judging.judge import GatesFailedError, Judgement, judge, not_judged
from optc.compiling.resolving.options import ResolvedOptions
from optc.proof.gates.measure import GateResult
from tests.artifact.pages.sample import DECISIONS

GOOD = GateResult("kl_mean", 0.1, 0.5, True, "engine", "", "a")
BAD = GateResult("kl_p99", 0.9, 0.5, False, "engine", "0.9 is above the bound 0.5", "a")
NOISY = GateResult("decode_speedup", 1.0, 1.1, None, "engine", "too noisy", "a")
FREE = GateResult("perplexity", 7.0, None, None, "engine", "", "a")
ABSENT = GateResult("kl_mean", None, 0.5, None, "none", "no GPU", "b")
REPORT: dict[str, Any] = {
    "passes": ["p"],
    "warnings": ["w"],
    "gates": ["g"],
    "peak_anon_bytes": 1,
    "seconds": 2.0,
    "machine": {},
}


def judged(
    monkeypatch: pytest.MonkeyPatch, *verdicts: EngineVerdict, allow_unmeasured: bool = False
) -> Judgement:
    """The judgement on engines of which each has one of ``verdicts``."""
    waiting = list(verdicts)

    class Gates:
        def __init__(self, context: Any) -> None:
            assert context.bounds == {"kl_mean": 0.5}
            assert context.artifact == Path("a")

        def __enter__(self) -> Gates:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def judge(self, entry: Any, lowered_onnx: Path | None) -> EngineVerdict:
            assert lowered_onnx == Path(f"lowered of {entry.name}")
            return waiting.pop(0)

    monkeypatch.setattr(engine_gates, "EngineGates", Gates)
    names = ["a", "b"][: len(verdicts)]
    engines = [
        SimpleNamespace(
            entry=SimpleNamespace(name=name),
            build=SimpleNamespace(lowered_onnx=Path(f"lowered of {name}")),
        )
        for name in names
    ]
    options = SimpleNamespace(
        recipe=SimpleNamespace(gates={"kl_mean": 0.5}),
        asked=SimpleNamespace(eval_text=None, allow_unmeasured=allow_unmeasured),
        max_ram_bytes=0,
        progress=None,
    )
    return judge(
        cast(ResolvedOptions, options),
        cast(Any, SimpleNamespace(reference=None)),
        cast("list[BuiltEngine]", engines),
        None,
        Path("a"),
    )


def test_failed_gates_forbid_the_artifact_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = judged(monkeypatch, EngineVerdict((GOOD, BAD, FREE), {"tokens": 640}, ("careful",)))
    assert found.measured
    assert found.gates == (GOOD, BAD, FREE)
    assert found.failed == (BAD,)
    assert found.facts == {"a": {"tokens": 640}}
    assert found.warnings == ("careful",)


def test_gates_without_a_value_forbid_it_unless_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdicts = EngineVerdict((GOOD,)), EngineVerdict((ABSENT,))
    refused = judged(monkeypatch, *verdicts)
    assert (refused.failed, refused.warnings, refused.facts) == ((ABSENT,), (), {})
    allowed = judged(monkeypatch, *verdicts, allow_unmeasured=True)
    assert allowed.failed == ()
    assert allowed.warnings == ("gates without a verdict: b: kl_mean: no GPU",)
    noisy = judged(monkeypatch, EngineVerdict((NOISY,)), allow_unmeasured=True)
    assert noisy.warnings == ("gates without a verdict: decode_speedup: too noisy",)
    bad = judged(
        monkeypatch, EngineVerdict((BAD,)), EngineVerdict((ABSENT,)), allow_unmeasured=True
    )
    assert bad.failed == (BAD,), "what was measured and failed is not let through"


def test_gates_that_were_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = [SimpleNamespace(entry=SimpleNamespace(name=name)) for name in ("a", "b")]
    found = not_judged({"kl_mean": 0.5, "kl_p99": None}, cast("list[BuiltEngine]", engines))
    assert not found.measured
    assert found.failed == ()
    names = [(g.engine, g.name, g.value, g.passed, g.reason) for g in found.gates]
    off = (None, None, "the gates were switched off")
    assert names == [(e, n, *off) for e in "ab" for n in ("kl_mean", "kl_p99")]
    assert found.warnings == (
        "the gates were switched off: nothing proves this artifact against its source",
    )


@pytest.mark.parametrize(
    ("failed", "hint"),
    [
        (
            (BAD,),
            "--gate name=bound changes a bound, "
            "--eval-text FILE judges on text such as the model was trained on, "
            "--bisect names the pass, node and tensor where the divergence begins, ",
        ),
        ((ABSENT,), "--allow-unmeasured lets through what cannot be measured here, "),
        ((NOISY,), "--allow-unmeasured lets through what cannot be measured here, "),
    ],
)
def test_the_error_says_what_to_do(failed: tuple[GateResult, ...], hint: str) -> None:
    judgement = Judgement((*failed, GOOD), measured=True, failed=failed)
    error = GatesFailedError(judgement, REPORT, None)
    assert error.hint == f"no artifact was written; {hint}--keep-failed keeps the result"
    assert error.exit_code == 4
    kept = GatesFailedError(judgement, REPORT, Path("out.failed"))
    assert kept.hint == f"the result is kept in out.failed, marked as failed; {hint[:-2]}"
    assert kept.details["artifact"] == "out.failed"


def test_the_error_has_what_was_measured() -> None:
    alone = GatesFailedError(Judgement((BAD,), True, (BAD,)), REPORT, None)
    assert alone.message == "kl_p99: 0.9 is above the bound 0.5"
    report = {key: value for key, value in REPORT.items() if key != "machine"}
    assert alone.details == {"artifact": None, "decisions": {}, **report}
    figures = {"a": {"answers": {"decisions": DECISIONS}}, "b": {"tokens": 1}}
    decided = GatesFailedError(
        Judgement((BAD,), True, (BAD,)), REPORT | {"evaluation": figures}, None
    )
    assert decided.details["decisions"] == {"a": DECISIONS}, "which the command shows"
    several = GatesFailedError(Judgement((BAD, ABSENT), True, (BAD, ABSENT)), REPORT, None)
    assert several.message == "a: kl_p99: 0.9 is above the bound 0.5; b: kl_mean: no GPU"
