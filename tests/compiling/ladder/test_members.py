"""Which recipes are on a ladder, and with which options."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc import registry
from optc.compiling.ladder.members import find_members, general_recipes, is_general
from optc.compiling.recipes.recipe import load_recipe
from optc.errors import InputError
from optc.system.options import CompileOptions
from tests.support.stub import StubBackend

BOUNDS = ("kl_mean=0.01",)
PRUNED = """
name: {name}
backend: tvm
pipeline: [canonicalize, {prune} kv-cache]
gates: {{kl_mean: 0.5}}
"""


def names(asked: CompileOptions) -> list[str]:
    return [one.recipe.name for one in find_members(asked, BOUNDS)]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(PRUNED.format(name="mine", prune=""))
    return path


def test_general_recipes_are_those_that_take_nothing_out_of_the_model() -> None:
    """Of every shipped recipe: its passes, not its name, decide."""
    general = {name for name in registry.recipe_files() if is_general(load_recipe(name))}
    assert {"int2-fused", "int8-fused", "kv-int4", "mixed-4", "bf16-fused", "fp32"} <= general
    others = set(registry.recipe_files()) - general
    assert others == {
        *("prune-2to4-int8", "prune-50-int8", "prune-depth-int8", "prune-width-int8"),
        "vocab-trim-int4",
    }


@pytest.mark.parametrize("backend", ["tvm", "tensorrt"])
def test_a_backend_has_its_own_recipes(backend: str) -> None:
    found = general_recipes(backend)
    assert found
    assert {load_recipe(name).backend for name in found} == {backend}


def test_a_backend_that_no_recipe_names_has_those_of_the_default_one() -> None:
    assert general_recipes("onnxruntime") == general_recipes("tvm")


def test_every_ladder_ends_in_a_float_engine() -> None:
    """It promises what practically any gate allows."""
    for backend in ("tvm", "tensorrt"):
        bounds = [load_recipe(name).gates["kl_mean"] or 1 for name in general_recipes(backend)]
        assert min(bounds) <= 1e-4


def test_recipes_of_another_distribution_join(
    backends: dict[str, StubBackend], mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = dict(registry.recipe_files())
    monkeypatch.setattr(registry, "recipe_files", lambda: {**shipped, "mine": mine})
    assert "mine" in names(CompileOptions(recipe="auto"))


def test_a_ladder_of_ones_own(backends: dict[str, StubBackend], mine: Path) -> None:
    asked = CompileOptions(recipe="auto", ladder=(str(mine), "fp32", "fp32"))
    assert names(asked) == ["mine", "fp32"]
    whole = names(CompileOptions(recipe="auto", ladder=("all", str(mine))))
    assert set(whole) == {*general_recipes("tvm"), "mine"}


def test_the_engine_decides_whose_recipes_are_tried(backends: dict[str, StubBackend]) -> None:
    asked = CompileOptions(recipe="auto", backend="tensorrt:sm_90")
    assert set(names(asked)) == set(general_recipes("tensorrt"))


def test_the_gates_of_the_ladder_take_the_place_of_a_recipes_own(
    backends: dict[str, StubBackend],
) -> None:
    for member in find_members(CompileOptions(recipe="auto"), BOUNDS):
        recipe = load_recipe(member.source, gates=member.asked.gate)
        assert set(recipe.gates) >= set(member.recipe.gates)
        judged = {name: bound for name, bound in recipe.gates.items() if bound is not None}
        assert judged == {"kl_mean": 0.01}


def test_an_option_is_for_the_recipes_that_have_its_pass(
    backends: dict[str, StubBackend],
) -> None:
    text = "quantize-weights.group_size=64"
    found = find_members(CompileOptions(recipe="auto", set=[text]), BOUNDS)
    with_it = {one.recipe.name for one in found if text in one.asked.set}
    assert "int4-fused" in with_it
    assert "fp32" not in with_it
    assert len(found) == len(general_recipes("tvm"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"set": ["quantise-weights.bits=4"]}, "--set: unknown pass 'quantise-weights'"),
        ({"set": ["vocab-trim.folder=x"]}, "--set: no recipe of the ladder has the pass"),
        ({"set": ["quantize-weights.bit=4"]}, "unknown option 'bit'"),
        ({"set": ["quantize-weights"]}, "'quantize-weights' is not pass.option=value"),
        ({"ladder": ["int9"]}, "--ladder: unknown recipe 'int9'"),
        ({"ladder": ["missing.yaml"]}, "missing.yaml: cannot read the recipe"),
        ({"ladder": ["vocab-trim-int4"]}, "'vocab-trim-int4' trims the vocabulary"),
    ],
)
def test_what_no_ladder_takes_is_refused(
    backends: dict[str, StubBackend], more: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        find_members(CompileOptions(recipe="auto", **more), BOUNDS)  # type: ignore[arg-type]
    assert message in refused.value.render()


def test_two_recipes_of_one_name_are_refused(
    backends: dict[str, StubBackend], tmp_path: Path
) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(PRUNED.format(name="fp32", prune=""))
    with pytest.raises(InputError, match="two recipes are called 'fp32'"):
        find_members(CompileOptions(recipe="auto", ladder=("all", str(path))), BOUNDS)


def test_recipes_that_prune_are_tried_by_name(
    backends: dict[str, StubBackend], tmp_path: Path
) -> None:
    path = tmp_path / "pruned.yaml"
    path.write_text(PRUNED.format(name="pruned", prune="prune-weights,"))
    assert not is_general(load_recipe(path))
    assert names(CompileOptions(recipe="auto", ladder=[str(path)])) == ["pruned"]
