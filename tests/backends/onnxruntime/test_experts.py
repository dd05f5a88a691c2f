"""Engines of mixtures of experts, by the bodies of their operators; and who refuses them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from optc.backends.onnxruntime.build import build_engine
from optc.backends.onnxruntime.loader import load_engine
from optc.backends.onnxruntime.support import support_of
from optc.backends.tensorrt.support import support_of as tensorrt_support_of
from optc.system.hardware.target import parse_target
from tests.backends.onnxruntime.engines import OPTIONS, Driver
from tests.support.experts.models import Experts, expert_model
from tests.support.families import FUSED
from tests.support.models import Dense
from tests.support.pipelines import pipeline_of
from tests.support.ragged import RaggedDriver, run_dense

SHAPE = Dense(hidden=64, inner=32, head_dim=16, rotary_dim=16, windows=(0,))
EXPERTS = Experts(bias=True, corrected=True)
INT4 = "quantize-weights{bits=4,group_size=32,symmetric=false},fuse-norm-quantize"
TOKENS = [int(t) for t in np.random.default_rng(1).integers(0, 61, 9)]


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ("", 1e-4),
        (",cast-weights", 0.02),
        (",quantize-weights,fuse-norm-quantize", 0.03),
        (f",{INT4}", 0.1),
    ],
)
def test_an_engine_computes_what_the_step_does(more: str, error: float, tmp_path: Path) -> None:
    model = expert_model(SHAPE, EXPERTS)
    pipeline_of(FUSED + more).run(model)
    want = RaggedDriver(model).step({0: TOKENS}) if more else None
    build = build_engine(model, parse_target("native"), tmp_path, OPTIONS)
    driver = Driver(load_engine(tmp_path, build.spec, build.backend_data, threads=1))
    got = np.concatenate([driver.step({0: TOKENS[:4]}, {0: 1}), driver.step({0: TOKENS[4:]}, {})])
    if want is None:
        want = run_dense(expert_model(SHAPE, EXPERTS), TOKENS)
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < error


@pytest.mark.parametrize("more", ["", ",cast-weights", ",quantize-weights"])
def test_gpus_refuse_experts_by_name(more: str) -> None:
    model = expert_model(SHAPE, EXPERTS)
    pipeline_of(FUSED + more).run(model)
    names = {"TopKRouter", "ExpertMatMul", "CombineExperts"}
    names |= {"Bf16ExpertMatMul", "QuantizedExpertMatMul"}
    nodes = [node for node in model.graph if node.op_type in names]
    assert len(nodes) == 4
    for node in nodes:
        assert support_of(node, parse_target("native")).how == "decomposed"
        for found in (
            support_of(node, parse_target("sm_90")),
            tensorrt_support_of(node, parse_target("sm_120")),
        ):
            assert found.how == "unsupported"
            assert node.op_type in found.reason
