"""Pruned models compiled and run: tokens of ONNX Runtime, drafts, prefixes, adapters, manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import safetensors.numpy

import optc
from optc.artifact.artifact import Artifact
from optc.compiling.recipes.recipe import load_recipe
from optc.importer.import_model import import_model
from optc.ir.linear import find_linears
from optc.passes.prune.structured.cut import given_rows
from tests.importer.decoders import build, config_of, save
from tests.support.ragged import run_dense
from tests.support.shared import made_once

#: Heads of 16: the kernels take multiples of 8.
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3}
NEW = 24
GREEDY = optc.SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)
RECIPE = """
name: pruned
pipeline:
  - canonicalize
  - prune-depth: {{units: mlp, target: 0.7x, {text}}}
  - prune-heads: {{target: 0.84x, {text}}}
  - prune-width: {{target: 0.75x, multiple: 16, {text}}}
  - prune-weights: {{sparsity: 0.5, method: wanda, sequential: false, {weights}}}
  - fuse-qkv
  - fuse-gate-up
  - kv-cache: {{tree: true}}
  - fuse-residual-norm
  - fuse-rotary
gates: {{}}
"""
TEXT = "windows: 8, window_tokens: 64, measured_windows: 2"
WEIGHTS = "windows: 8, window_tokens: 64"
PROMPTS = [
    np.random.default_rng(seed).integers(3, 90, size).tolist() for seed, size in ((1, 40), (2, 7))
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random llama, and the recipe that prunes it."""

    def make(folder: Path) -> Path:
        (folder / "pruned.yaml").write_text(RECIPE.format(text=TEXT, weights=WEIGHTS))
        return save(build(config_of("Llama", **SIZES)), folder / "model")

    return made_once(tmp_path_factory, "pruned-source", make)


@pytest.fixture(scope="module")
def artifact(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    def compile(folder: Path) -> Path:
        return optc.compile(
            source,
            source.parent / "pruned.yaml",
            folder / "artifact",
            self_draft=2,
            adapters="max=1,rank=16",
            no_gates=True,
        ).path

    return Artifact.open(made_once(tmp_path_factory, "pruned-artifact", compile))


@pytest.fixture(scope="module")
def engine(artifact: Artifact) -> Iterator[optc.Engine]:
    with optc.load(artifact.path, kv_memory="4MiB") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def pruned(source: Path) -> ir.Model:
    """The dense form behind the passes that prune."""
    model = import_model(source).model
    recipe = load_recipe(str(source.parent / "pruned.yaml"))
    for one in recipe.pipeline.passes[:5]:
        options = {"folder": str(source)} if one.name.startswith("prune") else {}
        one.with_options(options).run(model)
    return model


def greedy(model: ir.Model, prompt: list[int]) -> tuple[int, ...]:
    """What ONNX Runtime says behind ``prompt`` on the dense form."""
    tokens = list(prompt)
    for _ in range(NEW):
        tokens.append(int(run_dense(model, tokens)[-1].argmax()))
    return tuple(tokens[len(prompt) :])


def test_the_engine_says_what_the_pruned_model_does(engine: optc.Engine, pruned: ir.Model) -> None:
    found = [result.token_ids for result in engine.generate(PROMPTS, GREEDY)]
    assert found == [greedy(pruned, prompt) for prompt in PROMPTS]


@pytest.mark.parametrize("speculate", ["ngram", "self"])
def test_drafts_change_nothing(engine: optc.Engine, artifact: Artifact, speculate: str) -> None:
    plain = [result.token_ids for result in engine.generate(PROMPTS, GREEDY)]
    assert not any(one.spec.shared_kv for one in artifact.manifest.engines), "layers were taken out"
    options = {"speculate": speculate, "num_speculative_tokens": 3, "kv_memory": "4MiB"}
    with optc.load(artifact.path, **options) as drafting:
        results = drafting.generate(PROMPTS, GREEDY)
    assert [result.token_ids for result in results] == plain


def test_a_known_prefix_is_not_computed_again(engine: optc.Engine) -> None:
    prompt = np.random.default_rng(9).integers(3, 90, 60).tolist()
    first, again = (engine.generate([prompt], GREEDY)[0] for _ in range(2))
    assert (first.metrics.cached_tokens, again.metrics.cached_tokens > 0) == (0, True)
    assert first.token_ids == again.token_ids


def save_adapter(folder: Path, artifact: Artifact) -> dict[str, np.ndarray]:
    """A random adapter of all layers that take one; what it adds to the weights, by name."""
    rng, tensors, added = np.random.default_rng(4), dict[str, np.ndarray](), {}
    target = next(one for one in artifact.manifest.engines if one.role == "target")
    assert target.spec.adapters is not None
    for module in target.spec.adapters.modules:
        for part in module.parts:
            a = rng.standard_normal((4, module.k)).astype(np.float32)
            b = (0.05 * rng.standard_normal((part.stop - part.start, 4))).astype(np.float32)
            layer = part.name.removesuffix(".weight")
            tensors[f"{layer}.lora_A.weight"], tensors[f"{layer}.lora_B.weight"] = a, b
            added[part.name] = 2 * b @ a
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4, "lora_alpha": 8}')
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors")
    return added


@pytest.mark.parametrize("options", [{}, {"speculate": "ngram", "num_speculative_tokens": 3}])
def test_an_adapter_adds_to_the_pruned_weights(
    artifact: Artifact, pruned: ir.Model, tmp_path: Path, options: dict[str, object]
) -> None:
    added = save_adapter(tmp_path, artifact)
    model = pruned.clone()
    for one in find_linears(model):
        if (delta := added.pop(one.name, None)) is not None:
            rows = one.weight.read_rows(0, one.weight.rows_shape[0]) + delta
            one.initializer.const_value = given_rows(one.weight, rows)
    assert not added
    with optc.load(artifact.path, kv_memory="4MiB", **options) as adapted:
        adapted.load_adapter("one", tmp_path)
        results = adapted.generate(PROMPTS, GREEDY, adapter="one")
    found = [result.token_ids for result in results]
    assert found == [greedy(model, prompt) for prompt in PROMPTS]
    assert found != [greedy(pruned, prompt) for prompt in PROMPTS]


def test_the_manifest_has_what_is_left(artifact: Artifact) -> None:
    manifest = artifact.manifest
    target = next(one for one in manifest.engines if one.role == "target")
    assert len(target.spec.layers) == 3
    assert sorted(layer.kv_heads for layer in target.spec.layers) == [1, 2, 2]
    counts = {one.name: dict(one.details) for one in manifest.passes}
    assert counts["prune-depth"]["mlp"] == 1
    assert counts["prune-heads"]["kv groups"] == 1
    assert counts["prune-width"]["neurons"] == 2 * 32
    assert counts["prune-weights"]
    assert target.spec.adapters is not None
    parts = {p.name: p for module in target.spec.adapters.modules for p in module.parts}
    sizes = {name.split(".", 2)[2]: part.stop - part.start for name, part in parts.items()}
    assert sorted(size for name, size in sizes.items() if "k_proj" in name) == [16, 32, 32]
    assert [size for name, size in sizes.items() if "gate_proj" in name] == [64, 64]
    (draft,) = (one for one in manifest.engines if one.role == "self")
    assert draft.spec.layers == target.spec.layers[:2]
