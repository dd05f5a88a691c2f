"""Recipes that an engine has no code for stop a compile before its first stage."""

from __future__ import annotations

from pathlib import Path

import pytest

import optc
from optc import registry
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.resolving.engines import name_engines
from optc.compiling.resolving.options import for_engines
from optc.compiling.resolving.preflight_nodes import check_options
from optc.errors import UnsupportedError

#: Who takes integer weights with zero points, and float types.
CPU = "out; backends that can run it: onnxruntime, tvm, tvm-cuda"
FLOAT = "out; backends that can run it: onnxruntime, tensorrt"


@pytest.mark.parametrize(
    ("recipe", "engine", "message", "takers"),
    [
        (
            "int4-fast",
            "tensorrt:sm_89",
            "TensorRT takes no weights with zero points or integer",
            CPU,
        ),
        (
            "trt-nvfp4",
            "tensorrt:sm_89",
            "float4e2m1 has no kernels on sm_89, only from sm_100 on",
            FLOAT,
        ),
        (
            "trt-fp8",
            "tensorrt:sm_86,sm_89",
            "float8e4m3fn has no kernels on sm_86, only from",
            FLOAT,
        ),
        ("trt-nvfp4", "tvm", "operator optc::BlockFp4MatMul has no kernel", FLOAT),
    ],
)
def test_the_engine_and_its_reason_are_named(
    recipe: str, engine: str, message: str, takers: str, tmp_path: Path
) -> None:
    """The model does not even exist: nothing was read."""
    text = tmp_path / "text"
    text.write_text("text")
    with pytest.raises(UnsupportedError) as caught:
        optc.compile(
            tmp_path / "absent",
            recipe,
            tmp_path / "out",
            backend=f"onnxruntime,{engine}",
            calibration=text,
        )
    name = engine.replace(":", "-").replace(",", "+") if ":" in engine else f"{engine}-native"
    assert caught.value.message.startswith(f"{name}: {message}")
    assert caught.value.where.startswith("quantize-")
    assert caught.value.hint.endswith(takers)
    assert not (tmp_path / "out").exists()


OWN = {"trt-nvfp4": "tensorrt:sm_120", "trt-fp8": "tensorrt:sm_89,sm_120"}


@pytest.mark.parametrize("recipe", sorted(registry.recipe_files()))
def test_every_recipe_suits_its_own_backend(recipe: str) -> None:
    loaded = load_recipe(recipe)
    default = f"{loaded.backend}:sm_89" if loaded.backend == "tensorrt" else loaded.backend
    engines = name_engines(OWN.get(recipe, default), None, loaded.backend)
    check_options(for_engines(loaded, engines, ()), engines)


def test_other_options_may_mend_it() -> None:
    engines = name_engines("tensorrt:sm_89", None, "tvm")
    check_options(load_recipe("int4-fast", sets=SYMMETRIC), engines)


SYMMETRIC = [
    "quantize-weights.symmetric=true",
    "quantize-weights.group_scales=float",
    "quantize-weights.head_bits=8",
]


@pytest.mark.parametrize("form", ["fp8", "nf4", "mxfp4", "nvfp4"])
@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("tvm", "operator optc::CodebookMatMul has no kernel"),
        ("tensorrt:sm_120", "CodebookMatMul has no form in TensorRT's operators"),
    ],
)
def test_formats_of_storage_say_who_has_them(form: str, engine: str, message: str) -> None:
    """Whatever the recipe rounds by: nothing of a model or a text is read."""
    sets = [f"quantize-weights.format={form}", "quantize-weights.method=gptq"]
    recipe = load_recipe("trt-int8", sets=sets)
    with pytest.raises(UnsupportedError) as caught:
        check_options(recipe, name_engines(engine, None, "tvm"))
    assert message in caught.value.message
    assert caught.value.hint.endswith(
        "leave that engine out; backends that can run it: onnxruntime"
    )
    check_options(recipe, name_engines("onnxruntime", None, "tvm"))
