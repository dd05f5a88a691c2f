"""Recipes of drafts that are made of the target."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from optc.backend import NATIVE, Support
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.resolving.draft_recipes import draft_candidates
from optc.compiling.resolving.draft_spec import DraftSpec
from optc.compiling.resolving.engines import name_engines
from optc.errors import InputError, UnsupportedError
from optc.proof.reference.text import digest_text
from optc.system.hardware.target import Target
from optc.system.options import CompileOptions
from tests.support.stub import StubBackend

OWN = load_recipe("fp32")


def test_bits_have_a_recipe_of_their_own_and_its_text(
    backends: dict[str, StubBackend], tmp_path: Path
) -> None:
    text = tmp_path / "t.txt"
    text.write_text("text")
    asked = CompileOptions(calibration=text, set=["quantize-weights.group_size=64"])
    specs = [DraftSpec(2), DraftSpec(4, 0.5), DraftSpec(None, 0.5)]
    engines = name_engines("tvm", None, "tvm")
    two, four, same = draft_candidates(specs, OWN, asked, Path("model"), engines)
    assert [one.spec for one in (two, four, same)] == specs
    assert [one.recipe.name for one in (two, four, same)] == ["int2-fused", "int4-fused", "fp32"]
    for candidate in (two, four):
        (reads,) = (p for p in candidate.recipe.pipeline.passes if p.name == "propagate-errors")
        assert reads.stated_options()["sha256"] == digest_text(text)
        assert reads.folder == "model"
    assert "group_size=64" not in two.recipe.pipeline.spec(), "--set is of the target"


def test_layers_and_neurons_go_before_everything_else(backends: dict[str, StubBackend]) -> None:
    engines = name_engines("tvm", None, "tvm")
    spec = DraftSpec(None, 0.5, 0.75)
    (found,) = draft_candidates([spec], OWN, CompileOptions(), Path("model"), engines)
    text = found.recipe.pipeline.spec()
    own = OWN.pipeline.spec()
    assert text.startswith("canonicalize,prune-depth{")
    assert text.endswith(own.removeprefix("canonicalize"))
    for name, share in (("prune-depth", "0.5x"), ("prune-width", "0.75x")):
        (one,) = (p for p in found.recipe.pipeline.passes if p.name == name)
        assert (vars(one)["target"], vars(one)["folder"]) == (share, "model")


def test_a_target_that_is_pruned_so_is_not_pruned_again(backends: dict[str, StubBackend]) -> None:
    own, engines = load_recipe("prune-depth-int8"), name_engines("tvm", None, "tvm")
    with pytest.raises(InputError, match="prune-depth"):
        draft_candidates([DraftSpec(None, 0.5)], own, CompileOptions(), Path("m"), engines)


def test_the_recipe_is_that_of_the_engines(backends: dict[str, StubBackend]) -> None:
    engines = name_engines("aot:sm_89", None, "tvm")
    (four,) = draft_candidates([DraftSpec(4)], OWN, CompileOptions(), Path("m"), engines)
    assert four.recipe.backend == "aot"
    assert "group_scales=int" not in four.recipe.pipeline.spec(), "cuda wants it so"
    (native,) = draft_candidates(
        [DraftSpec(4)], OWN, CompileOptions(), Path("m"), name_engines("tvm", None, "tvm")
    )
    assert "group_scales=int" in native.recipe.pipeline.spec()


def test_an_engine_without_kernels_is_refused(
    backends: dict[str, StubBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    def supports(self: StubBackend, node: ir.Node, target: Target) -> Support:
        bits = node.attributes.get("bits")
        few = bits is not None and bits.as_int() == 2
        return Support("unsupported", "no kernel for 2 bits") if few else NATIVE

    monkeypatch.setattr(StubBackend, "supports", supports)
    engines = name_engines("tvm", None, "tvm")
    with pytest.raises(UnsupportedError) as caught:
        draft_candidates([DraftSpec(2)], OWN, CompileOptions(), Path("m"), engines)
    message = caught.value.render()
    assert message.startswith("--draft self:bits=2: quantize-weights{")
    assert message.endswith(": no kernel for 2 bits (leave it or that engine out)")
