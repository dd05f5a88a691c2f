"""Families that lack what some fusion looks for, compiled by the shipped recipes and run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import optc
from benchmarks.families import fake_quantization
from benchmarks.families.fake_quantization import in_groups
from benchmarks.families.int8_loss import ALLOWED, engine_logits, mean_kl
from benchmarks.families.models import logits
from optc.compiling.plan import plan
from tests.importer.decoders import VOCABULARY, build, config_of, save, tokens

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


#: What these lack, others here lack as well, or tests of the importer and of kernels show.
LONG = ("StableLm", "Starcoder2")


def kinds(*names: str) -> list[Any]:
    """Names of families, of which some take part in `make test-long` alone."""
    return [pytest.param(n, marks=[pytest.mark.long] if n in LONG else []) for n in names]


@pytest.mark.parametrize("kind", kinds(*FAMILIES, *MORE))
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


@pytest.mark.long
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


@pytest.fixture(scope="module")
def clamped(tmp_path_factory: pytest.TempPathFactory) -> tuple[torch.nn.Module, Path]:
    """Experts with clamped gates and biases, and where they are saved."""
    model = build(config_of("GptOss", **SIZES, **MORE["GptOss"][0]))
    return model, save(model, tmp_path_factory.mktemp("clamped") / "model")


@pytest.mark.long
@pytest.mark.parametrize(("recipe", "weights"), [("int8-fused", None), ("int4-fast", in_groups)])
def test_clamped_experts_lose_what_a_fake_quantization_loses(
    recipe: str, weights: Any, clamped: tuple[Any, Path], tmp_path: Path
) -> None:
    model, source = clamped
    # the fake quantization has the head in the bits of all other layers
    options = ["quantize-weights.head_bits=4"] if weights is not None else []
    options += ["rotate-kv.block=0", "rotate-activations.block=0"]  # and it rotates nothing
    artifact = optc.compile(source, recipe, tmp_path / "artifact", set=options, no_gates=True)
    ids = np.random.default_rng(1).integers(4, VOCABULARY, (6, 64))
    expected = logits(model, ids)
    lost = mean_kl(expected, engine_logits(artifact.path, ids))
    fake = mean_kl(expected, fake_quantization.logits(model, ids, weights))
    assert 0.5 * fake < lost < ALLOWED * fake, (lost, fake)
    free = build(config_of("GptOss", **SIZES, **{**MORE["GptOss"][0], "swiglu_limit": 1e3}))
    assert mean_kl(expected, logits(free, ids)) > 2 * lost, "the limit matters"


#: Each recipe, and each backend with it, takes one of the families, each family twice; `make test`
#: has each recipe and each backend.
TAKEN = [
    ("bf16-fused", "tvm", "Olmo2"),
    ("int4-fast", "onnxruntime", "Starcoder2"),
    ("trt-int8", "tensorrt:sm_89", "Starcoder2"),
    pytest.param("bf16-fused", "onnxruntime", "StableLm", marks=pytest.mark.long),
    pytest.param("int4-fast", "tvm", "StableLm", marks=pytest.mark.long),
    pytest.param("trt-int8", "onnxruntime", "Olmo2", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("recipe", "backend", "kind"), TAKEN)
def test_every_recipe_takes_them(recipe: str, backend: str, kind: str, tmp_path: Path) -> None:
    path = save(build(config_of(kind, **SIZES, **FAMILIES[kind][0])), tmp_path / "model")
    found = plan(path, recipe, backends=backend)
    (engine,) = found.engines
    assert engine.counts["unsupported"] == 0, [n for n in engine.nodes if n.reason]
    assert any(text.startswith("pass fuse-residual-norm") for text in found.warnings)
