"""Families that lack what some fusion looks for, compiled by the shipped recipes and run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import optc
from optc.driver.plan import plan
from tests.importer.decoders import build, config_of, save, tokens

#: Heads of 16: the kernels take multiples of 8.
SIZES = {"hidden_size": 64, "intermediate_size": 96}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
#: What differs from the base, and which fusions find nothing in fp32.
FAMILIES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "Olmo2": ({}, {"fuse-residual-norm"}),
    "StableLm": ({"partial_rotary_factor": 0.5, "use_qkv_bias": True}, {"fuse-residual-norm"}),
    "Starcoder2": ({"sliding_window": 8}, {"fuse-gate-up", "fuse-residual-norm"}),
}
#: Those whose float32 engine alone is compared: weights by input channel, flat tokens, learned
#: positions; choices, and parameters of one number; experts with clamped gates.
MORE: dict[str, tuple[dict[str, Any], set[str]]] = {
    "GPT2": ({}, {"fuse-gate-up", "fuse-residual-norm"}),
    "Apertus": ({"hidden_act": "xielu"}, {"fuse-gate-up"}),
    "GptOss": ({**EXPERTS, "swiglu_limit": 1.0, "head_dim": 16, "sliding_window": 8}, set()),
}
NEW = 20


def greedy(model: torch.nn.Module, prompt: list[int]) -> tuple[int, ...]:
    """What transformers generates after ``prompt``, without its cache."""
    ids = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(NEW):
            following = model(input_ids=ids, use_cache=False).logits[:, -1].argmax(-1)
            ids = torch.cat([ids, following[:, None]], dim=1)
    return tuple(ids[0, len(prompt) :].tolist())


@pytest.mark.parametrize("kind", [*FAMILIES, *MORE])
def test_fp32_generates_what_transformers_does(kind: str, tmp_path: Path) -> None:
    options, idle = {**FAMILIES, **MORE}[kind]
    model = build(config_of(kind, **SIZES, **options))
    path = save(model, tmp_path / "model")
    artifact = optc.compile(path, "fp32", tmp_path / "artifact")  # its gates hold
    warnings = [text for text in artifact.report()["warnings"] if text.startswith("pass ")]
    assert {text.split()[1].rstrip(":") for text in warnings} == idle
    near = "; nearest miss: node" if kind in FAMILIES else ""
    assert all(f"found nothing to rewrite{near}" in text for text in warnings)
    prompts = [row[:length].tolist() for row, length in zip(tokens(), (7, 12), strict=True)]
    with optc.load(artifact.path, kv_memory="4MiB") as engine:
        sampling = optc.SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)
        found = [result.token_ids for result in engine.generate(prompts, sampling)]
    assert found == [greedy(model, prompt) for prompt in prompts]


#: Whose engine runs each family: the weights are quantized before any backend sees them.
BACKENDS = {"Olmo2": "onnxruntime", "StableLm": "onnxruntime", "Starcoder2": "tvm"}


@pytest.mark.parametrize("kind", FAMILIES)
def test_int8_is_measured_against_the_reference(kind: str, tmp_path: Path) -> None:
    path = save(build(config_of(kind, **SIZES, **FAMILIES[kind][0])), tmp_path / "model")
    # the recipe's bounds are for trained models, whose logits are further apart
    bounds = {"kl_mean": 0.02, "kl_p99": 0.2, "top1_agreement": 0.9, "perplexity_ratio": 1.02}
    gates = [f"{name}={bound}" for name, bound in bounds.items()]
    report = optc.compile(
        path, "int8-fused", tmp_path / "artifact", gate=gates, backend=BACKENDS[kind]
    ).report()
    values = {gate["name"]: gate["value"] for gate in report["gates"]}
    assert values["kl_mean"] > 1e-6, "the weights are quantized"
    (quantized,) = [one for one in report["passes"] if one["name"] == "quantize-weights"]
    assert quantized["count"] > 5


#: Each recipe, and each backend with it, takes one of the families, each family twice.
TAKEN = [
    ("bf16-fused", "tvm", "Olmo2"),
    ("bf16-fused", "onnxruntime", "StableLm"),
    ("int4-fast", "tvm", "StableLm"),
    ("int4-fast", "onnxruntime", "Starcoder2"),
    ("trt-int8", "tensorrt:sm_89", "Starcoder2"),
    ("trt-int8", "onnxruntime", "Olmo2"),
]


@pytest.mark.parametrize(("recipe", "backend", "kind"), TAKEN)
def test_every_recipe_takes_them(recipe: str, backend: str, kind: str, tmp_path: Path) -> None:
    path = save(build(config_of(kind, **SIZES, **FAMILIES[kind][0])), tmp_path / "model")
    found = plan(path, recipe, backends=backend)
    (engine,) = found.engines
    assert engine.counts["unsupported"] == 0, [n for n in engine.nodes if n.reason]
    assert any(text.startswith("pass fuse-residual-norm") for text in found.warnings)
