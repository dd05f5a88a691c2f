"""Captured experts: shapes, what is never run, and mixtures of transformers in dense form."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from transformers import GptOssConfig, PretrainedConfig
from transformers.models.dots1.modeling_dots1 import Dots1MoE
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
from transformers.models.olmoe.modeling_olmoe import OlmoeSparseMoeBlock

from optc.importer.capturing import experts as capture
from optc.importer.export import OPSET
from optc.importer.import_model import import_model
from optc.ir.functions import attributes_of
from optc.passes.canonicalize import Canonicalize
from optc.passes.canonicalize.canonicalize import STEPS
from optc.passes.canonicalize.dense_form import check_dense_form
from optc.system.logs.quiet import quiet
from tests.importer.decoders import Float32, build, config_of, error, reference, run, save, tokens
from tests.passes.canonicalize.texts import evaluate

COMMON = {"num_local_experts": 6, "num_experts": 6, "num_experts_per_tok": 2}
COMMON |= {"moe_intermediate_size": 40, "head_dim": 16}
FAMILIES: dict[str, dict[str, Any]] = {
    "Qwen3Moe": {"decoder_sparse_step": 1, "norm_topk_prob": True},
    "Qwen2Moe": {"decoder_sparse_step": 1, "shared_expert_intermediate_size": 56},
}
PLAIN = {"top_k": 2, "scoring": "softmax", "normalize": 0, "norm_epsilon": 0.0, "scale": 1.0}
PLAIN |= {"groups": 1, "top_groups": 1, "group_score": "max"}


def routers(model: ir.Model) -> list[dict[str, Any]]:
    return [attributes_of(node) for node in model.graph if node.op_type == "TopKRouter"]


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_decoder_with_experts(kind: str, tmp_path: Path) -> None:
    """From a checkpoint with a tensor for each expert, as people publish them."""
    model = build(config_of(kind, **COMMON, **FAMILIES[kind]))
    imported = import_model(save(model, tmp_path / kind))
    report = Canonicalize().run(imported.model)
    assert report.details["find-experts: matmul by experts"] == 2
    assert routers(imported.model) == [{**PLAIN, "normalize": int(kind == "Qwen3Moe")}]
    kinds = Counter(node.op_type for node in imported.model.graph)
    assert kinds["ExpertMatMul"] == 2 * kinds["CombineExperts"] == 2
    assert error(run(imported.model, tokens()), reference(model, tokens())) < 2e-5


class Flat(torch.nn.Module):
    """The mixture of a layer alone: x [B, S, D] to its result."""

    def __init__(self, mlp: torch.nn.Module) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.mlp(x)
        return result[0] if isinstance(result, tuple) else result


def in_dense_form(mlp: torch.nn.Module, width: int) -> ir.Model:
    """A module over x [B, S, width], exported and canonicalized."""
    capture.register()
    axes = {0: torch.export.Dim("B"), 1: torch.export.Dim("S")}
    with torch.no_grad(), quiet():
        program = torch.onnx.export(
            Flat(mlp).eval(),
            (torch.zeros(2, 9, width),),
            dynamo=True,
            opset_version=OPSET,
            optimize=False,
            verbose=False,
            input_names=["x"],
            output_names=["y"],
            dynamic_shapes={"x": axes},
            custom_translation_table=capture.translations(),
        )
    assert program is not None
    model = program.model
    model.ir_version = 10
    for step in STEPS:
        if step.name not in ("find-attention", "probe-heads"):
            step.run(model)
    check_dense_form(model)
    return model


def seeded(module: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.5)
    return module.eval()


@pytest.mark.parametrize(
    ("kind", "block", "normalize"),
    [("Mixtral", MixtralSparseMoeBlock, 1), ("Olmoe", OlmoeSparseMoeBlock, 0)],
)
def test_a_mixture_alone(kind: str, block: type[torch.nn.Module], normalize: int) -> None:
    model, x, want = both(block, config_of(kind, **{**COMMON, "head_dim": 12}))
    assert routers(model) == [{**PLAIN, "normalize": normalize}]
    kinds = Counter(node.op_type for node in model.graph)
    assert kinds == {
        "MatMul": 1,
        "TopKRouter": 1,
        "ExpertMatMul": 2,
        "CombineExperts": 1,
        "Split": 1,
        "Sigmoid": 1,
        "Mul": 2,
    }
    got = evaluate(model, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def both(
    block: type[torch.nn.Module], config: PretrainedConfig
) -> tuple[ir.Model, Float32, Float32]:
    """A block in dense form, x [2, 7, D], and what transformers makes of it."""
    config._experts_implementation = "eager"
    mlp = seeded(block(config))
    x = torch.randn(2, 7, config.hidden_size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = Flat(mlp)(x).numpy()
    config._experts_implementation = capture.EXPERTS
    return in_dense_form(mlp, config.hidden_size), x.numpy(), want


def test_interleaved_experts_with_biases_and_clamped_gates() -> None:
    sizes = {"hidden_size": 24, "intermediate_size": 20, "swiglu_limit": 1.5}
    config = GptOssConfig(**sizes, num_local_experts=6, num_experts_per_tok=2)
    model, x, want = both(GptOssMLP, config)
    assert routers(model) == [{**PLAIN, "scoring": "softmax_after"}]
    kinds = Counter(node.op_type for node in model.graph)
    assert kinds["Slice"] == 0
    assert kinds["Split"] == 1
    got = evaluate(model, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_a_router_with_groups_correction_and_scale() -> None:
    config = config_of(
        "Dots1",
        n_routed_experts=16,
        n_shared_experts=1,
        num_experts_per_tok=4,
        n_group=4,
        topk_group=2,
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
        moe_intermediate_size=20,
    )
    model, x, want = both(Dots1MoE, config)
    expected = {"scoring": "sigmoid", "normalize": 1, "scale": 2.5, "top_k": 4}
    expected |= {"groups": 4, "top_groups": 2, "group_score": "top2_sum"}
    (router,) = routers(model)
    assert router == {**PLAIN, **expected, "norm_epsilon": router["norm_epsilon"]}
    assert 0 < float(router["norm_epsilon"]) < 1e-19
    got = evaluate(model, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


class Experts(torch.nn.Module):
    """What the captured function reads of a class of experts."""

    has_gate, has_bias, is_transposed, has_post_expert_norm = False, True, True, True

    def __init__(self) -> None:
        super().__init__()
        self.up_proj, self.up_proj_bias = torch.zeros(3, 8, 5), torch.zeros(3, 5)
        self.down_proj, self.down_proj_bias = torch.zeros(3, 5, 8), torch.zeros(3, 8)
        self.act_fn = torch.nn.ReLU()
        self.post_expert_norm = torch.nn.LayerNorm(8)


def test_shapes_without_gates() -> None:
    with torch.device("meta"):
        module = Experts().to("meta")
        for name in ("up_proj", "up_proj_bias", "down_proj", "down_proj_bias"):
            setattr(module, name, getattr(module, name).to("meta"))
        out = capture.experts(
            module, torch.empty(7, 8), torch.empty(7, 2, dtype=torch.int64), torch.empty(7, 2)
        )
    assert tuple(out.shape) == (7, 8)


def test_the_operators_are_never_run() -> None:
    index, weight = torch.zeros(4, 2, dtype=torch.int64), torch.zeros(3, 5, 8)
    with pytest.raises(NotImplementedError, match="expert_matmul is only traced"):
        torch.ops.optc.expert_matmul(torch.zeros(4, 8), index, weight, None, 0, 1)
    with pytest.raises(NotImplementedError, match="combine_experts is only traced"):
        torch.ops.optc.combine_experts(torch.zeros(4, 2, 5), torch.zeros(4, 2))
