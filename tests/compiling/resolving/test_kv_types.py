"""KV types that an engine does not keep stop a compile before its first stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import optc
from optc import registry
from optc.compiling.recipes.recipe import Recipe, load_recipe
from optc.compiling.resolving.engines import name_engines
from optc.compiling.resolving.kv_types import check_kv_type
from optc.errors import UnsupportedError
from optc.ir.pipeline.pipeline import Pipeline
from optc.runtime.executable.executable import KV_TYPES
from optc.system.hardware.target import parse_target
from tests.backends.tvm.engine_driver import SHAPE
from tests.support.families import FUSED, model_after


def recipe(dtype: str) -> Recipe:
    return load_recipe("fp32", sets=[f"kv-cache.dtype={dtype}"])


def test_pools_of_float16_are_refused_by_name(tmp_path: Path) -> None:
    """The model does not even exist: nothing was read."""
    with pytest.raises(UnsupportedError) as caught:
        optc.compile(
            tmp_path / "absent",
            "fp32",
            tmp_path / "out",
            backend="onnxruntime,tvm,tvm-cuda:cuda:sm_90",
            set=["kv-cache.dtype=float16"],
        )
    assert str(caught.value) == (
        "kv-cache.dtype=float16: tvm-cuda-sm_90: no CUDA kernel reads KV pools of float16 "
        "(set kv-cache.dtype=… with one that it takes: float32, bfloat16, int8)"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("engine", ["tvm", "tvm:x86-64-v3", "tvm:aarch64-dotprod"])
def test_pools_of_float16_are_for_cpus(engine: str) -> None:
    check_kv_type(recipe("float16"), name_engines(engine, None, "tvm"))


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ("onnxruntime", "ONNX Runtime's slots and pages hold no int4"),
        ("onnxruntime:sm_90", "ONNX Runtime's slots and pages hold no int4"),
        ("tensorrt:sm_89", "TensorRT's slots hold no int4"),
        ("tvm-cuda:sm_90", "no CUDA kernel reads KV pools of int4"),
    ],
)
def test_int4_is_for_cpus(engine: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=f"kv-cache.dtype=int4: {engine.split(':')[0]}") as e:
        check_kv_type(recipe("int4"), name_engines(["tvm", engine], None, "tvm"))
    assert reason in str(e.value)


@pytest.mark.parametrize("dtype", KV_TYPES)
def test_all_other_types_pass(dtype: str) -> None:
    engines = ["onnxruntime", "onnxruntime:sm_90", "tensorrt:sm_89"] if dtype != "int4" else []
    if dtype != "float16":
        engines += ["tvm", *(["tvm-cuda:sm_90"] if dtype != "int4" else [])]
    check_kv_type(recipe(dtype), name_engines(engines, None, "tvm"))


def test_recipes_without_keys_and_values_pass() -> None:
    whole = recipe("float16")
    bare = replace(whole, pipeline=Pipeline(whole.pipeline.passes[:1]))
    check_kv_type(bare, name_engines("tvm", None, "tvm"))


@pytest.mark.parametrize("target", ["native", "cuda:sm_90"])
@pytest.mark.parametrize("dtype", KV_TYPES)
def test_nodes_are_judged_by_the_same_table(dtype: str, target: str) -> None:
    shape = replace(SHAPE, head_dim=32)  # of int4: pairs of groups
    model = model_after(FUSED.replace("kv-cache", f"kv-cache{{dtype={dtype}}}"), shape)
    attention = [node for node in model.graph if "Paged" in node.op_type]
    assert attention
    for name in ("tvm" if target == "native" else "tvm-cuda", "onnxruntime"):
        backend, wanted = registry.backend(name), parse_target(target)
        pools = backend.kv_pools(dtype, wanted)
        for node in attention:
            found = backend.supports(node, wanted)
            assert (found.how == "unsupported") == (pools.how == "unsupported")
            if pools.how == "unsupported":
                assert found == pools
