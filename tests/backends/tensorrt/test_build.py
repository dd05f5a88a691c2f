"""Whole builds: every compute type of two trained layers, for all GPUs that take it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc import registry
from optc.backend import BuildOptions, EngineBuild
from optc.backends.tensorrt.engine_data import ENGINE_FILE
from optc.backends.tensorrt.header import read_header
from optc.backends.tensorrt.provider import missing_reason
from optc.compiling.drafts.layer_skip import keep_first_layers
from optc.compiling.judging.engine_gates import lowered_runner
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.recipes.recipe_additions import with_calibration
from optc.errors import UnsupportedError
from optc.importer.import_model import import_model
from optc.ir.pipeline import registry as pass_registry
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.quantize.quantize_static import QuantizeStatic
from optc.proof.reference.text import digest_text
from optc.system.hardware.target import parse_target
from tests.backends.tensorrt.lowered import run, step_feeds
from tests.backends.tensorrt.test_plan import step
from tests.support.calibration import set_input_ranges
from tests.support.families import FUSED, model_after
from tests.support.models import Dense, dense_model
from tests.support.pipelines import pipeline_of
from tests.support.ragged import run_dense

pytestmark = pytest.mark.skipif(bool(missing_reason()), reason=missing_reason())
ROOT = Path(__file__).parents[3]
MODEL = ROOT / "examples/models/pycode"
TEXT = ROOT / "examples/text/code_calibration.jsonl"
CALIBRATED = ("trt-int8-qdq", "trt-fp8", "trt-nvfp4")
ALL = "sm_80+sm_86+sm_89+sm_120"
#: Layers of the example model that are built: deeper models have more of the same.
LAYERS = 2


def _build(model: ir.Model, target: str, folder: Path, context: int = 256) -> EngineBuild:
    (folder / "work").mkdir()
    (folder / "scratch").mkdir()
    options = BuildOptions(
        max_context=context, max_rows=128, max_sequences=8, scratch=folder / "scratch"
    )
    backend = registry.backend("tensorrt")
    return backend.build(model, parse_target(target), folder / "work", options)


@cache
def _imported() -> ir.Model:
    """The first layers of the example model, canonical; recipes run on clones."""
    model = import_model(MODEL).model
    pipeline_of("canonicalize").run(model)
    keep_first_layers(model, LAYERS)
    return model


def _lowered(recipe: str, layers: int = LAYERS) -> ir.Model:
    model = _imported().clone()
    if layers < LAYERS:
        keep_first_layers(model, layers)
    loaded = load_recipe(recipe, sets=["calibrate.windows=1"] if recipe in CALIBRATED else [])
    loaded = with_calibration(loaded, TEXT, MODEL, digest_text(TEXT))
    first, *others = loaded.pipeline.passes
    assert first.name == "canonicalize"
    Pipeline(tuple(others)).run(model)
    return model


def _check_engine(profiles: list[dict[str, Any]], types: dict[str, int], layers: int) -> None:
    assert [one["name"] for one in profiles] == ["decode", "verify", "prefill"]
    for one in profiles:
        assert one["fused_attention"]["fused"] == one["fused_attention"]["of"] == layers
        assert one["kv_in_place"] == {"in_place": 2 * layers, "of": 2 * layers}
        assert one["matmul_types"] == types
        assert one["other_matmuls"] == []


@pytest.mark.parametrize(
    ("recipe", "target", "types"),
    [
        ("trt-fp16", ALL, {"Half x Half": 9}),
        ("trt-int8", ALL, {"Half x Int8": 9}),
        ("trt-int4", ALL, {"Half x Int4": 8, "Half x Int8": 1}),
        ("bf16-fused", "sm_89", {"BFloat16 x BFloat16": 9}),
        ("trt-int8-qdq", ALL, {"Int8 x Int8": 8, "Half x Half": 1}),
        ("trt-fp8", "sm_89+sm_120", {"FP8 x FP8": 8, "Half x Half": 1}),
        ("trt-nvfp4", "sm_120", {"FP4E2M1 x FP4E2M1": 4, "Half x Half": 1}),
    ],
)
def test_the_example_model_builds_with_fused_attention_and_its_types(
    tmp_path: Path, recipe: str, target: str, types: dict[str, int]
) -> None:
    layers = 1 if recipe == "trt-nvfp4" else LAYERS  # its weights take five seconds a layer
    built = _build(_lowered(recipe, layers), target, tmp_path)
    assert built.warnings == ()
    _check_engine(built.report["engine"]["profiles"], types, layers)
    header = read_header(tmp_path / "work" / ENGINE_FILE)
    assert header.architectures == tuple(target.split("+"))
    assert built.requires == {"tensorrt_rtx": ".".join(map(str, header.version))}
    assert built.spec.kv_layout == "slots"
    assert not built.spec.batch_invariant
    assert built.backend_data["aliases"]["present_k.0"] == "past_k.0"


def test_nvfp4_is_refused_by_name_where_a_gpu_lacks_it(tmp_path: Path) -> None:
    shape = Dense(hidden=32, heads=2, kv_heads=1, head_dim=16, rotary_dim=16, inner=32)
    model = dense_model(shape)
    pipeline_of("kv-cache").run(model)
    set_input_ranges(model, 8.0)
    QuantizeStatic(dtype="nvfp4").run(model)
    with pytest.raises(UnsupportedError, match="float4e2m1 has no kernels on sm_89, only from"):
        _build(model, "sm_89+sm_120", tmp_path)
    assert list((tmp_path / "work").iterdir()) == []


def test_the_lowered_model_runs_on_onnx_runtime(tmp_path: Path) -> None:
    shape = Dense(hidden=64, heads=4, kv_heads=2, head_dim=16, rotary_dim=16, inner=64, vocab=96)
    model = model_after(FUSED, shape)
    reference = model.clone()
    pass_registry.passes()["kv-slots"]().run(reference)
    built = _build(model, "sm_89", tmp_path, context=40)
    assert built.lowered_onnx is not None
    assert built.computes_in == "float16"
    length = built.backend_data["slot_length"]
    assert length == 48
    feeds = step_feeds(reference, [0, 9], 3, 96, length)
    got, want = run(built.lowered_onnx, feeds)[0], run(reference, feeds)[0]
    assert float(np.abs(got - want).max()) < 0.01 * float(np.abs(want).max())


def test_only_the_engine_comes_into_the_artifact(tmp_path: Path) -> None:
    model = model_after("kv-cache", Dense(hidden=32, head_dim=16, rotary_dim=16))
    built = _build(model, "sm_89", tmp_path, context=40)
    assert [path.name for path in (tmp_path / "work").iterdir()] == list(built.files)


def test_models_with_softcap_have_no_fused_attention_and_say_nothing_wrong(tmp_path: Path) -> None:
    model = dense_model(Dense(head_dim=16, rotary_dim=16, softcap=3.0, windows=(8, 0)))
    pipeline_of("kv-cache").run(model)
    built = _build(model, "sm_89", tmp_path, context=40)
    for one in built.report["engine"]["profiles"]:
        assert one["fused_attention"]["of"] == 0
        assert one["kv_in_place"]["in_place"] == one["kv_in_place"]["of"] == 4


def test_asymmetric_weights_are_refused_before_anything_is_built(tmp_path: Path) -> None:
    model = dense_model(Dense(hidden=64, inner=64))
    spec = "kv-cache,quantize-weights{bits=4,group_size=32,symmetric=false}"
    pipeline_of(spec).run(model)
    backend, target = registry.backend("tensorrt"), parse_target("sm_89")
    nodes = [node for node in model.graph if node.op_type == "QuantizedMatMul"]
    support = backend.supports(nodes[0], target)
    assert support.how == "unsupported"
    assert "quantize symmetrically" in support.reason
    with pytest.raises(UnsupportedError, match="zero points") as caught:
        _build(model, "sm_89", tmp_path)
    assert caught.value.message == support.reason
    assert list((tmp_path / "work").iterdir()) == []


def test_the_lowered_model_runs_behind_the_runtimes_interface(tmp_path: Path) -> None:
    """As gates run it: ONNX Runtime's backend, slots shorter than those that the model has."""
    shape = Dense(hidden=64, heads=4, kv_heads=2, head_dim=16, rotary_dim=16, inner=64, vocab=96)
    model, dense = dense_model(shape), dense_model(shape)
    pipeline_of("fuse-qkv,fuse-gate-up,kv-cache").run(model)
    built = _build(model, "sm_89", tmp_path, context=40)
    runner = lowered_runner()
    assert runner is not None
    assert built.lowered_onnx is not None
    executable = runner.open_lowered(built.lowered_onnx, built.spec, 1)
    executable.allocate_kv((4,), 32)
    batch = step({2: (0, 9, [8]), 0: (0, 4, [0, 3])})
    tokens = np.array([7, 3, 90, 41, 0, 12, 55, 6, 80, 9, 9, 21, 70], np.int32)
    logits = executable.step(replace(batch, tokens=tokens))
    first, second = run_dense(dense, tokens[:9].tolist()), run_dense(dense, tokens[9:].tolist())
    want = np.stack([first[8], second[0], second[3]])
    assert np.abs(logits - want).max() < 0.02 * np.abs(want).max()
    executable.close()


def test_odd_numbers_of_heads_have_fused_attention_in_every_profile(tmp_path: Path) -> None:
    """TensorRT's kernel for one row takes even numbers of heads only; the other one helps out."""
    model = model_after(
        "kv-cache", Dense(hidden=48, heads=3, kv_heads=1, head_dim=16, rotary_dim=16)
    )
    built = _build(model, "sm_80+sm_89", tmp_path, context=40)
    assert built.warnings == ()
    for one in built.report["engine"]["profiles"]:
        assert one["fused_attention"]["fused"] == one["fused_attention"]["of"] == 2
