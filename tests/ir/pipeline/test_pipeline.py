"""Pipelines: spec text, order, running, reports, and what is said when something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.errors import InputError, UnsupportedError
from optc.ir.functions import ensure_function
from optc.ir.pipeline import registry as pass_registry
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.instruments import dump_to
from optc.ir.pipeline.pipeline import Pipeline
from optc.ir.pipeline.record import PassRecord
from tests.support.ir_text import model_of
from tests.support.pipelines import pipeline_of


@dataclass(frozen=True)
class Rename(Pass):
    """Renames Tanh nodes: a pass with every type of option."""

    name: ClassVar[str] = "rename"
    required: ClassVar[bool] = True

    to: str = "t"
    times: int = 1
    share: float = 0.5
    loudly: bool = False

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        report = PassReport()
        for node in model.graph:
            if node.op_type == "Tanh":
                node.name = self.to * self.times
                report.add("tanh")
            else:
                report.skip(node, "is no Tanh")
        return report


@dataclass(frozen=True)
class Wish(Rename):
    """What it does makes a model faster, not another one."""

    name: ClassVar[str] = "wish"
    required: ClassVar[bool] = False
    expected: ClassVar[bool] = True


@dataclass(frozen=True)
class Late(Pass):
    name: ClassVar[str] = "late"
    after: ClassVar[tuple[str, ...]] = ("rename",)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        return PassReport(facts={"late": True})


@dataclass(frozen=True)
class Early(Pass):
    name: ClassVar[str] = "early"
    before: ClassVar[tuple[str, ...]] = ("rename", "late")

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        return PassReport()


@dataclass(frozen=True)
class Strict(Pass):
    name: ClassVar[str] = "strict"
    holds: bool = True

    def requires(self, model: ir.Model) -> None:
        if not self.holds:
            raise InputError("nothing to stand on", where="pass strict")

    def ensures(self, model: ir.Model) -> None:
        raise RuntimeError("it did not hold")

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        return PassReport()


class Known:
    """A registry of these passes."""

    def passes(self) -> dict[str, type[Pass]]:
        return {one.name: one for one in (Rename, Wish, Late, Early, Strict)}

    def pass_groups(self) -> dict[str, Sequence[type[Pass]]]:
        return {"both": (Rename, Late)}


def model(node: str = "y = Tanh (x)") -> ir.Model:
    return model_of("g (float[S,8] x) => (float[S,8] y)", node)


@given(
    st.builds(
        Rename,
        to=st.from_regex(r"[a-z0-9_.:-]{1,8}", fullmatch=True),
        times=st.integers(-9, 9),
        share=st.floats(allow_nan=False, allow_infinity=False),
        loudly=st.booleans(),
    ),
    st.sampled_from([{}, {"optional": frozenset({"rename"})}, {"required": frozenset({"rename"})}]),
)
def test_spec_round_trip(one: Rename, marks: dict[str, frozenset[str]]) -> None:
    pipeline = Pipeline((Early(), one, Late()), **marks)
    assert pipeline_of(pipeline.spec(), Known()) == pipeline


def test_spec_leaves_defaults_out() -> None:
    pipeline = Pipeline((Rename(times=2, loudly=True), Late()), optional=frozenset({"late"}))
    assert pipeline.spec() == "rename{times=2,loudly=true},late{optional=true}"


def test_all_wrong_places_are_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        Pipeline((Late(), Rename(), Early())).validate()
    assert str(caught.value) == (
        "pipeline: late must come after rename; early must come before rename; "
        "early must come before late (the order was: late, rename, early)"
    )


EMPTY = {"skipped": [], "facts": {}, "warning": ""}


def test_run_reports_each_pass() -> None:
    m = model()
    ensure_function(m, "AddRMSNorm", {"epsilon": 1e-5})
    seen: list[str] = []
    records = pipeline_of("rename{to=ab,times=2},late", Known()).run(
        m, [lambda record, _: seen.append(record.name)]
    )
    assert m.graph[0].name == "abab"
    assert seen == ["rename", "late"]
    assert not m.functions  # those that nothing calls are dropped
    as_json = [record.to_json() for record in records]
    assert all(entry.pop("seconds") >= 0 for entry in as_json)
    assert as_json == [
        {"name": "rename", "count": 1, "details": {"tanh": 1}, **EMPTY},
        {"name": "late", "count": 0, "details": {}, **EMPTY, "facts": {"late": True}},
    ]
    assert [record.spec for record in records] == ["rename{to=ab,times=2}", "late"]


def test_a_required_pass_that_never_fires_tells_the_nearest_miss() -> None:
    with pytest.raises(UnsupportedError) as caught:
        pipeline_of("rename", Known()).run(model("y = Sin (x)"))
    assert str(caught.value) == (
        "pass rename: the pass found nothing to rewrite; nearest miss: Sin: is no Tanh "
        "(leave the pass out, or set optional: true on it)"
    )
    records = pipeline_of("rename{optional=true}", Known()).run(model("y = Sin (x)"))
    assert records[0].report.count == 0


def test_a_pass_that_is_only_expected_to_fire_warns_with_the_nearest_miss() -> None:
    records = pipeline_of("wish", Known()).run(model("y = Sin (x)"))
    assert records[0].to_json()["warning"] == (
        "pass wish: the pass found nothing to rewrite; nearest miss: Sin: is no Tanh"
    )
    assert not pipeline_of("wish", Known()).run(model())[0].warning
    assert not pipeline_of("wish{optional=true}", Known()).run(model("y = Sin (x)"))[0].warning


@pytest.mark.parametrize("name", ["wish", "late"])
def test_any_pass_can_be_required(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"pass {name}: the pass found nothing to rewrite"):
        pipeline_of(f"rename{{optional=true}},{name}{{required=true}}", Known()).run(
            model("y = Sin (x)")
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "rename{optional=true,required=true}",
            "pipeline: rename is both optional and required (the order was: rename)",
        ),
        (
            "rename{required=yes}",
            "pass rename: option required='yes' is neither true nor false",
        ),
    ],
)
def test_marks_that_make_no_sense_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        pipeline_of(text, Known())
    assert str(caught.value) == message


def test_conditions_are_checked_around_the_pass() -> None:
    with pytest.raises(InputError, match="nothing to stand on"):
        Pipeline((Strict(holds=False),)).run(model())
    with pytest.raises(RuntimeError, match="it did not hold"):
        Pipeline((Strict(),)).run(model())
    with pytest.raises(InputError, match="late must come after rename"):
        Pipeline((Late(),)).run(model())


def test_dump(tmp_path: Path) -> None:
    pipeline_of("rename,late", Known()).run(model(), [dump_to(tmp_path / "ir")])
    files = sorted(p.name for p in (tmp_path / "ir").iterdir())
    assert files == ["00-rename.onnx.txt", "01-late.onnx.txt"]
    assert "[t] y = Tanh (x)" in (tmp_path / "ir" / files[0]).read_text()


def test_the_whole_pipeline_of_the_project_parses() -> None:
    text = (
        "canonicalize,latent-kv,fuse-qkv,fuse-gate-up,kv-cache,fuse-residual-norm,fuse-rotary,"
        "quantize-weights{bits=4,group_size=32,symmetric=false},fuse-norm-quantize"
    )
    assert pipeline_of(text).spec() == text


def test_every_pass_of_the_project_is_documented_and_prints() -> None:
    for name, one in pass_registry.passes().items():
        assert one.__doc__, name
        assert one().spec() == name
        assert one.from_options({}) == one()


def test_a_record_is_data() -> None:
    record = PassRecord(0, "rename", "rename", 0.5, PassReport())
    assert record.to_json()["seconds"] == 0.5


@dataclass(frozen=True)
class Decide(Pass):
    """Says how often a later pass repeats its name."""

    name: ClassVar[str] = "decide"

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        return PassReport(settled={"rename.times": 3, "rename.loudly": True}, warnings=["by lot"])


def test_what_a_pass_settles_is_an_option_of_later_ones() -> None:
    model = model_of("g (float[S] x) => (float[S] y)", "y = Tanh (x)")
    pipeline = Pipeline((Decide(), Rename(to="a")))
    records = pipeline.run(model)
    assert [node.name for node in model.graph] == ["aaa"]
    assert records[1].spec == "rename{to=a,times=3,loudly=true}"
    assert records[0].report.warnings == ["by lot"]
    settled = pipeline.settled(records)
    assert settled.spec() == "decide,rename{to=a,times=3,loudly=true}"
    assert pipeline.settled(records[1:]) is pipeline


def test_what_is_settled_must_be_an_option() -> None:
    pipeline = Pipeline((Decide(), Late()))
    assert pipeline.settled([]) is pipeline
    record = PassRecord(0, "decide", "decide", 0.0, PassReport(settled={"late.when": 1}))
    with pytest.raises(InputError, match="unknown option 'when'"):
        pipeline.settled([record])


def test_the_first_passes_know_those_that_do_not_run() -> None:
    seen: list[list[str]] = []

    @dataclass(frozen=True)
    class Knows(Rename):
        name: ClassVar[str] = "knows"

        def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
            seen.append([one.name for one in context.later])
            return super().run(model, context)

    records = Pipeline((Knows(), Rename())).run(model(), first=1)
    assert [one.name for one in records] == ["knows"]
    assert seen == [["rename"]]
