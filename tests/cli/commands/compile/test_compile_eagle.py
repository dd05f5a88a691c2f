"""``optc compile --eagle``: what the manifest says of the layer, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optc import registry
from optc.artifact.artifact import Artifact
from optc.importer.additions.eagle import digest_eagle
from optc.system.hardware.target import Target
from tests.cli.conftest import Optc
from tests.support.drafts.heads import write_tensors
from tests.support.stub import StubBackend

WIDTH, INNER = 32, 64
SHAPES: dict[str, tuple[int, ...]] = {
    "model.layers.0.input_layernorm.weight": (WIDTH,),
    "model.layers.0.post_attention_layernorm.weight": (WIDTH,),
    "model.layers.0.self_attn.q_proj.weight": (WIDTH, WIDTH),
    "model.layers.0.self_attn.k_proj.weight": (WIDTH // 2, WIDTH),
    "model.layers.0.self_attn.v_proj.weight": (WIDTH // 2, WIDTH),
    "model.layers.0.self_attn.o_proj.weight": (WIDTH, WIDTH),
    "model.layers.0.mlp.gate_proj.weight": (INNER, WIDTH),
    "model.layers.0.mlp.up_proj.weight": (INNER, WIDTH),
    "model.layers.0.mlp.down_proj.weight": (WIDTH, INNER),
    "model.norm.weight": (WIDTH,),
    "eagle.fc.weight": (WIDTH, 2 * WIDTH),
    "eagle.embedding_norm.weight": (WIDTH,),
    "eagle.feature_norm.weight": (WIDTH,),
}


class HiddenStub(StubBackend):
    """Its engines give hidden states."""

    def gives_hidden(self, target: Target) -> bool:
        return True


@pytest.fixture
def hidden(stub: StubBackend, monkeypatch: pytest.MonkeyPatch) -> StubBackend:
    backend = HiddenStub()
    monkeypatch.setattr(registry, "backend", lambda name: backend)
    return backend


def arguments(model: Path, layer: Path, output: Path, *more: Any) -> tuple[Any, ...]:
    fixed = ("compile", model, "--eagle", layer, "-o", output, "--no-gates")
    return (*fixed, *(more or ("--recipe", "fp32")))


def test_copies_of_the_layer_give_the_same_manifest_and_other_layers_another(
    optc: Optc, hidden: StubBackend, quick_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    manifests = []
    for index, (name, seed) in enumerate((("one/layer", 3), ("other/renamed", 3), ("third", 4))):
        write_tensors(tmp_path / name, SHAPES, seed)
        output = tmp_path / f"out/{index}"
        assert optc(*arguments(tiny_model, tmp_path / name, output)).code == 0
        manifests.append((output / "manifest.json").read_text())
    assert manifests[0] == manifests[1] != manifests[2]
    assert str(tmp_path) not in manifests[0]
    artifact = Artifact.open(tmp_path / "out/0")
    target, layer = artifact.manifest.engines
    assert (target.role, layer.role) == ("target", "eagle")
    assert layer.source is not None
    assert layer.source.digest == digest_eagle(tmp_path / "third/../one/layer")
    assert layer.source.digest == artifact.report()["eagle"]["sha256"]
    assert "kv-cache,hidden-states," in artifact.manifest.pipeline


def test_the_layers_own_weights_are_of_4_bits_beside_a_target_of_4(
    optc: Optc, hidden: StubBackend, quick_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    """Rounded by no text, with the head as the target has it; of the layer everything is built."""
    write_tensors(tmp_path / "layer", SHAPES)
    recipe = ("--recipe", "int4-fast", "--set", "quantize-weights.group_size=32")
    output = tmp_path / "out"
    assert optc(*arguments(tiny_model, tmp_path / "layer", output, *recipe)).code == 0
    passes = {one["name"]: one for one in Artifact.open(output).report()["eagle"]["passes"]}
    assert passes["quantize-weights"]["details"] == {
        "embedding shares the head": 1,
        "int6 groups of 32 asymmetric, integer": 1,  # the head
        "int4 groups of 32 asymmetric, integer": 5,
    }
    assert hidden.built[1][1].shared is not None
    assert hidden.built[1][1].shared.partial


@pytest.mark.parametrize("name", ["eagle.safetensors", "config.json"])
def test_a_missing_file_is_found_before_any_work(
    optc: Optc, hidden: StubBackend, no_import: None, tiny_model: Path, tmp_path: Path, name: str
) -> None:
    layer = tmp_path / "layer"
    write_tensors(layer, SHAPES)
    (layer / name).unlink()
    outcome = optc(*arguments(tiny_model, layer, tmp_path / "out"))
    assert outcome.code == 2
    assert f"{layer}: no {name} (train a layer for this model with" in outcome.err
    assert not (tmp_path / "out").exists()


def test_a_layer_of_another_model_is_refused(
    optc: Optc, hidden: StubBackend, quick_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    write_tensors(tmp_path / "layer", SHAPES | {"model.norm.weight": (48,)})
    outcome = optc(*arguments(tiny_model, tmp_path / "layer", tmp_path / "out"))
    assert outcome.code == 2
    assert "model.norm.weight should be of shape [32], there is [48]" in outcome.err
    assert not hidden.built, "it is found before the engines are built"


def test_engines_that_give_no_hidden_states_are_refused(
    optc: Optc, stub: StubBackend, no_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    write_tensors(tmp_path / "layer", SHAPES)
    outcome = optc(*arguments(tiny_model, tmp_path / "layer", tmp_path / "out"))
    assert outcome.code == 2
    assert "--eagle: engines of the stub backend for" in outcome.err
    assert "give no hidden states (leave it or that engine out)" in outcome.err


def test_recipes_that_change_hidden_states_are_refused(
    optc: Optc, hidden: StubBackend, no_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    write_tensors(tmp_path / "layer", SHAPES)
    recipe = ("--recipe", "int8-smooth")
    outcome = optc(*arguments(tiny_model, tmp_path / "layer", tmp_path / "out", *recipe))
    assert outcome.code == 2
    assert (
        "--eagle: pass smooth of the recipe 'int8-smooth' gives hidden states a scale or a basis "
        "for which no layer was trained (take a recipe without smooth)"
    ) in outcome.err
