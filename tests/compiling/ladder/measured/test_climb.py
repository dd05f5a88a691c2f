"""Climbing by measurements: attempts that are made up, in real folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from optc.artifact.artifact import Artifact
from optc.artifact.tasks.tensors import TENSORS, TENSORS_NAME
from optc.artifact.writer import ArtifactWriter
from optc.compiling.judging.judge import Judgement
from optc.compiling.ladder.measured.climb import MeasuredClimber
from optc.compiling.ladder.measured.options import resolve_measured
from optc.compiling.ladder.members import Member
from optc.compiling.ladder.record import NoRungHeldError
from optc.compiling.stages.row import Attempt, Done, JudgeStage, Row, Stage
from optc.errors import InputError, UnsupportedError
from optc.proof.gates.measure import GateResult, judge
from optc.system.options import CompileOptions
from optc.system.progress import Progress, no_progress

BOUND = 30.0


@dataclass(frozen=True)
class Engine:
    """What a recipe's engine is like."""

    sqnr: float
    speed: float
    content: bytes


@dataclass
class Made:
    """An attempt at a recipe, and what became of it."""

    name: str
    engine: Engine | Exception
    log: list[str]
    report: dict[str, Any] = field(default_factory=dict)


class Build(Stage):
    """Writes a file as its engine."""

    name: ClassVar[str] = "build"

    def run(self, done: Done) -> None:
        made = done[Made]
        made.log.append(f"build {made.name}")
        if isinstance(made.engine, Exception):
            raise made.engine
        (done[ArtifactWriter].folder / "engine").write_bytes(made.engine.content)


class JudgeIt(JudgeStage):
    """Says what its engine is like."""

    def run(self, done: Done) -> Judgement:
        made = done[Made]
        made.log.append(f"judge {made.name}")
        assert isinstance(made.engine, Engine)
        gates = (
            judge("sqnr_db", made.engine.sqnr, BOUND),
            GateResult("inference_speedup", made.engine.speed, None, None, "engine", "", "target"),
        )
        failed = tuple(one for one in gates if one.passed is False)
        return Judgement(gates, measured=True, failed=failed)


class Finish(Stage):
    """Writes the chosen file."""

    name: ClassVar[str] = "write"

    def run(self, done: Done) -> Artifact:
        made, writer = done[Made], done[ArtifactWriter]
        made.log.append(f"finish {made.name}")
        made.report.update(done.report)
        (writer.output.parent / "chosen").write_bytes((writer.folder / "engine").read_bytes())
        return object.__new__(Artifact)


ROW = Row((Build(),), JudgeIt(), (Finish(),))


def climbed(
    tmp_path: Path, engines: Mapping[str, Engine | Exception], objective: str | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The ladder, and what was done."""
    asked = CompileOptions(
        recipe="auto", gate=[f"sqnr_db={BOUND}"], objective=objective, ladder=list(engines)
    )
    ladder = resolve_measured(asked, TENSORS_NAME, TENSORS)
    done: list[str] = []
    attempts: dict[str, Made] = {}

    def begin(member: Member, writer: ArtifactWriter, told: Progress) -> Attempt:
        name = member.recipe.name
        attempts[name] = Made(name, engines[name], done)
        return Attempt(Done(told).leave(attempts[name], writer, asked), ROW)

    with ArtifactWriter(tmp_path / "a") as writer, writer.scratch() as scratch:
        MeasuredClimber(ladder, begin, writer, scratch, no_progress).run()
        left = [path.name for path in scratch.iterdir()]
    chosen = next(one for one in attempts.values() if one.report)
    assert left == [f"rung-{chosen.name}"], "the others were removed"
    return chosen.report["ladder"], done


def outcomes(ladder: Mapping[str, Any]) -> Mapping[str, str]:
    return {one["recipe"]: one["outcome"] for one in ladder["rungs"]}


FAST, SMALL, EXACT = Engine(40, 2.0, b"33"), Engine(35, 1.5, b"1"), Engine(100, 1.0, b"4444")
ROUGH = Engine(20, 9.0, b"0")


def test_the_fastest_of_those_that_hold_is_chosen(tmp_path: Path) -> None:
    engines = {"tensors-fp32": EXACT, "products-int8": FAST, "vision-fp16": SMALL}
    ladder, done = climbed(tmp_path, {**engines, "vision-int8": ROUGH})
    assert (tmp_path / "chosen").read_bytes() == FAST.content
    assert ladder["chosen"] == "products-int8"
    assert [one["recipe"] for one in ladder["rungs"]] == [
        "products-int8",
        "vision-fp16",
        "tensors-fp32",
        "vision-int8",
    ]
    assert outcomes(ladder)["vision-int8"] == "fell"
    assert ladder["rungs"][-1]["why"] == "sqnr_db: 20 is below the bound 30"
    assert ladder["rungs"][0]["measured"] == {"speed": 2.0, "artifact_bytes": 2}
    assert done[-1] == "finish products-int8"


def test_the_smallest_may_be_asked_for(tmp_path: Path) -> None:
    engines = {"tensors-fp32": EXACT, "products-int8": FAST, "vision-fp16": SMALL}
    ladder, _ = climbed(tmp_path, engines, "size")
    assert ladder["chosen"] == "vision-fp16"


def test_of_equal_speeds_the_smaller_one_is_chosen(tmp_path: Path) -> None:
    engines = {"tensors-fp32": Engine(90, 2.02, b"22"), "vision-fp16": Engine(50, 2.0, b"1")}
    ladder, _ = climbed(tmp_path, engines)
    assert ladder["chosen"] == "vision-fp16"


def test_what_does_not_take_the_model_is_left_out(tmp_path: Path) -> None:
    refused = UnsupportedError("no ids of texts", where="pass pack-rows")
    ladder, done = climbed(tmp_path, {"encoder-int8": refused, "tensors-fp32": EXACT})
    assert outcomes(ladder) == {"tensors-fp32": "chosen", "encoder-int8": "left out"}
    assert ladder["rungs"][-1]["why"] == "pass pack-rows: no ids of texts"
    assert "judge encoder-int8" not in done
    with pytest.raises(UnsupportedError, match="no ids of texts"):
        climbed(tmp_path / "b", {"encoder-int8": refused})
    assert not (tmp_path / "b").exists()


def test_an_engine_that_was_judged_is_not_judged_again(tmp_path: Path) -> None:
    ladder, done = climbed(tmp_path, {"products-int8": FAST, "vision-int8": FAST})
    assert "judge vision-int8" not in done
    assert outcomes(ladder) == {"products-int8": "chosen", "vision-int8": "skipped"}
    assert ladder["rungs"][-1]["why"] == "its engine is that of products-int8"


def test_where_none_holds_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(NoRungHeldError, match=r"no recipe holds sqnr_db=30: 1 of 1") as caught:
        climbed(tmp_path, {"vision-int8": ROUGH})
    assert caught.value.details["ladder"]["rungs"][0]["outcome"] == "fell"
    assert "--gate sqnr_db=20" in (caught.value.hint or "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "decode"}, "unknown objective 'decode'"),
        ({"gate": ["kl_mean=0.1"]}, "kl_mean is no measure of the task 'tensors'"),
        ({"gate": ["sqnr_db=none"]}, "no gate has a bound"),
        ({"ladder": ["int8-fused"]}, "'int8-fused' is for the task 'text-generation'"),
        ({"no_gates": True}, "not with --recipe auto: recipes are chosen by their gates"),
    ],
)
def test_what_is_not_possible_is_told(changes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_measured(CompileOptions(recipe="auto", **changes), TENSORS_NAME, TENSORS)


def test_every_shipped_task_has_gates_and_recipes() -> None:
    from optc import registry
    from optc.artifact.tasks.text_generation import TEXT_GENERATION

    kinds = {"transcription", "text-to-text", "image-generation"}
    names: Sequence[str] = [name for name in registry.tasks() if name != TEXT_GENERATION.name]
    for name in names:
        task = registry.tasks()[name]
        kind = name if name in kinds else TENSORS_NAME
        ladder = resolve_measured(CompileOptions(recipe="auto"), kind, task)
        assert ladder.bounds
        assert ladder.speed.endswith("speedup")
        assert len(ladder.members) >= 2
