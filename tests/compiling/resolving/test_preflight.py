"""What config.json and a recipe rule out before anything is imported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest

from optc.backend import NATIVE, Support
from optc.compiling.recipes.recipe import Recipe, load_recipe
from optc.compiling.resolving import preflight as early
from optc.compiling.resolving.engines import EngineTarget
from optc.compiling.resolving.preflight import (
    check_additions,
    check_config,
    check_context,
    check_layers,
    check_measurable,
)
from optc.errors import InputError, UnsupportedError
from optc.ir.pipeline import registry as pass_registry
from optc.ir.pipeline.pipeline import Pipeline
from optc.system.hardware.target import Target, parse_target
from tests.support.stub import StubBackend


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"num_hidden_layers": null}'])
def test_what_the_importer_will_refuse_is_left_to_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    check_config(tmp_path, 10**9, 10**9)


def test_context_and_layers_of_the_config(tmp_path: Path) -> None:
    config = {"max_position_embeddings": 64, "num_hidden_layers": 3}
    (tmp_path / "config.json").write_text(json.dumps(config))
    check_config(tmp_path, 64, 2)
    check_config(tmp_path, None, "auto")
    with pytest.raises(InputError, match="65 tokens exceed the model's own context of 64"):
        check_config(tmp_path, 65, None)
    with pytest.raises(InputError, match="3 of 3 layers"):
        check_config(tmp_path, None, 3)


def test_a_rotary_scaling_lengthens_the_context(tmp_path: Path) -> None:
    part = {"max_position_embeddings": 64, "rope_scaling": {"type": "yarn", "factor": 4}}
    for config in (part, {"text_config": part}):
        (tmp_path / "config.json").write_text(json.dumps(config))
        check_config(tmp_path, 256, None)
        with pytest.raises(InputError, match="257 tokens exceed the model's own context of 256"):
            check_config(tmp_path, 257, None)


def test_bounds() -> None:
    check_context(5, 5)
    check_context(2, 5)
    with pytest.raises(InputError, match=r"1 tokens leave no room for an answer .*at least 2"):
        check_context(1, 5)
    check_layers(1, 2)
    with pytest.raises(InputError, match=r"1 of 1 layers .*has no first layers"):
        check_layers(1, 1)
    with pytest.raises(InputError, match=r"0 of 3 layers .*1 to 2"):
        check_layers(0, 3)


class NoHeads(StubBackend):
    def supports(self, node: ir.Node, target: Target) -> Support:
        return Support("unsupported", "no room") if node.op_type == "ResidualHeads" else NATIVE


def request(backend: StubBackend) -> EngineTarget:
    return EngineTarget("target", backend, parse_target("native"))


def recipe_of(name: str) -> Recipe:
    pipeline = Pipeline((pass_registry.passes()[name](),))
    return Recipe("r", "", "stub", pipeline, {})


def test_additions_are_asked_of_every_engine() -> None:
    heads = recipe_of("medusa-heads")
    check_additions(heads, [request(StubBackend())])
    check_additions(recipe_of("adapters"), [request(NoHeads())])
    with pytest.raises(UnsupportedError) as caught:
        check_additions(heads, [request(StubBackend()), request(NoHeads("other"))])
    assert str(caught.value) == "--medusa: other-native: no room (leave it or that engine out)"


def test_gates_need_a_machine_that_runs_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere:
        def misfit(self, target: Target) -> str:
            return "" if target.kind == "cpu" else "no GPU"

    monkeypatch.setattr(early, "this_machine", Elsewhere)
    recipe = load_recipe("fp32")
    engines = [EngineTarget("gpu", StubBackend(), parse_target("sm_90"))]
    check_measurable(recipe, [request(StubBackend())])
    check_measurable(replace(recipe, gates={"kl_mean": None}), engines)
    with pytest.raises(InputError, match=r"the gates of stub-.* cannot be measured here: no GPU"):
        check_measurable(recipe, engines)
