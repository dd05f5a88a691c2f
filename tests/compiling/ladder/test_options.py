"""``--recipe auto``: what is looked up and refused before any work begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optc.compiling.ladder.members import general_recipes
from optc.compiling.ladder.options import LadderOptions, resolve_ladder
from optc.compiling.resolving.options import resolve_options
from optc.errors import InputError, OptcError
from optc.system.options import CompileOptions
from tests.support.stub import StubBackend


def resolve(model: Path, **more: Any) -> LadderOptions:
    return resolve_ladder(model, CompileOptions(recipe="auto", **more))


def test_defaults(model: Path, backends: dict[str, StubBackend]) -> None:
    found = resolve(model)
    assert found.objective == "decode"
    assert found.bounds == {"kl_mean": 0.01}
    assert found.default_bounds
    assert found.output == Path("artifacts/m-auto")
    assert {one.recipe.name for one in found.compiles} == set(general_recipes("tvm"))
    assert found.promised["fp32"]["kl_mean"] == 1e-6
    assert found.promised["fp32"]["top1_agreement"] == pytest.approx(0.001)
    assert found.left_out == {}


def test_what_is_asked_for(model: Path, backends: dict[str, StubBackend], tmp_path: Path) -> None:
    text = tmp_path / "t.txt"
    text.write_text("text")
    gates = ["kl_mean=0.005", "top1_agreement=0.95", "kl_p99=none"]
    found = resolve(
        model,
        objective="size",
        gate=gates,
        output=tmp_path / "out",
        eval_text=text,
        calibration=text,
        max_ram="2GiB",
        ladder=["fp32", "int4-fused"],
        target="x86-64-v3",
        allow_unmeasured=True,
    )
    assert (found.objective, found.output) == ("size", tmp_path / "out")
    assert found.bounds == {"kl_mean": 0.005, "top1_agreement": 0.95}
    assert not found.default_bounds
    assert found.max_ram_bytes == 2 << 30
    for one in found.compiles:
        assert one.asked.eval_text == text
        assert one.engines[0].target.name == "x86-64-v3"
        judged = {name for name, bound in one.recipe.gates.items() if bound is not None}
        assert judged == {"kl_mean", "top1_agreement"}
    texts = {
        one.recipe.name: {getattr(step, "text", "") for step in one.recipe.pipeline.passes}
        for one in found.compiles
    }
    assert str(text) in texts["int4-fused"]
    assert str(text) not in texts["fp32"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"objective": "speed"}, "--objective: unknown objective 'speed'"),
        ({"objective": "decod"}, "did you mean 'decode'?"),
        ({"gate": ["kl_men=0.1"]}, "--gate: unknown gate 'kl_men' (did you mean 'kl_mean'?)"),
        ({"gate": ["kl_mean"]}, "--gate: 'kl_mean' is not name=bound"),
        ({"gate": ["kl_mean=low"]}, "--gate: the bound 'low' of 'kl_mean' is not a number"),
        ({"gate": ["kl_mean=none"]}, "--gate: no gate has a bound, and recipes are chosen by"),
        ({"no_gates": True}, "--no-gates: not with --recipe auto: recipes are chosen by their"),
        ({"budget": "4bpw"}, "--budget: not with --recipe auto: a budget is for one recipe"),
        ({"trained": Path("t")}, "--trained: not with --recipe auto"),
        ({"bisect": True}, "--bisect: not with --recipe auto"),
        ({"keep_failed": True}, "--keep-failed: not with --recipe auto"),
        ({"dump_dir": Path("d")}, "--dump-dir: not with --recipe auto"),
        ({"set": ["nothing.bits=4"]}, "--set: unknown pass 'nothing'"),
        ({"eval_text": Path("missing.txt")}, "--eval-text: no such file: missing.txt"),
        ({"calibration": Path("missing.txt")}, "--calibration: no such file: missing.txt"),
        ({"backend": "tvn"}, "--backend: unknown backend 'tvn'"),
        ({"max_context": 1000}, "--max-context: 1000 tokens exceed the model's own context"),
        ({"max_ram": "lots"}, "--max-ram"),
    ],
)
def test_what_is_wrong_is_one_clear_error(
    model: Path, backends: dict[str, StubBackend], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptcError) as refused:
        resolve(model, **more)
    assert message in refused.value.render()


@pytest.mark.parametrize(("name", "value"), [("objective", "size"), ("ladder", ["fp32"])])
def test_options_of_a_search_are_refused_where_a_recipe_is_named(
    model: Path, backends: dict[str, StubBackend], name: str, value: Any
) -> None:
    with pytest.raises(InputError, match=f"--{name}: the recipe fp32 is named") as refused:
        resolve_options(model, CompileOptions(recipe="fp32", **{name: value}))
    assert "leave it out, or take --recipe auto" in refused.value.hint


def test_where_one_recipe_is_needed_auto_is_none(
    model: Path, backends: dict[str, StubBackend]
) -> None:
    with pytest.raises(InputError, match="'auto' is no recipe but a search among several"):
        resolve_options(model, CompileOptions(recipe="auto"))


def test_a_recipe_that_another_option_excludes_is_left_out_with_the_reason(
    model: Path, backends: dict[str, StubBackend]
) -> None:
    found = resolve(model, adapters="max=2,rank=4")
    assert set(found.left_out) == {"kv-int4"}
    assert "scales projections of queries and keys" in found.left_out["kv-int4"]
    assert "kv-int4" not in {one.recipe.name for one in found.compiles}


def test_gates_that_cannot_be_measured_here_choose_nothing(
    model: Path, backends: dict[str, StubBackend]
) -> None:
    with pytest.raises(InputError, match="cannot be measured here"):
        resolve(model, backend="tensorrt:sm_90")
