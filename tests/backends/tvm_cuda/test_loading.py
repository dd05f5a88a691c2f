"""What a CUDA engine says where it cannot be loaded or built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest
import tvm_ffi

from optc.backends.tvm.engine_files import ENGINE_FILE, LIBRARIES, WEIGHTS_FILE
from optc.backends.tvm.runtime_libs import ffi_version
from optc.backends.tvm_cuda import BACKEND
from optc.backends.tvm_cuda.engine_data import RUNTIME_LIBRARY
from optc.backends.tvm_cuda.images import best_image, image_file
from optc.backends.tvm_cuda.loaded import loader, runtime
from optc.errors import ArtifactError, UnavailableError, UnsupportedError
from optc.proof.bench.utilization import measurable
from optc.runtime.executable.executable import StepInterface
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import parse_target
from tests.backends.tvm.engine_driver import INT4_A16, INT8, OPTIONS, SHAPE
from tests.support.families import FAMILIES, model_after
from tests.support.ir_text import model_of
from tests.support.models import Dense

CODE = {"images": {"90": image_file(90)}, "digest": "0", "range_values": 1, "kernels": ["a"]}
DATA = {"cuda": CODE, "ffi": "", "weights": []}
SPEC = StepInterface(8, 64, 8, 8, 8, 16, True, (), ())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (ENGINE_FILE, WEIGHTS_FILE, image_file(90), *LIBRARIES, RUNTIME_LIBRARY):
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / image_file(90)).unlink()
    with pytest.raises(ArtifactError, match=r"kernels\.sm_90\.cubin: the file is missing"):
        BACKEND.load(folder, SPEC, DATA, 1)


def test_an_engine_of_an_older_build_is_refused(folder: Path) -> None:
    older = {name: CODE[name] for name in ("images", "digest")}
    with pytest.raises(ArtifactError, match=r"required field .range_values") as caught:
        BACKEND.load(folder, SPEC, {**DATA, "cuda": older}, 1)
    assert "compile the model again" in caught.value.hint


def test_without_a_driver_the_reason_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = Machine(frozenset(), (), "no NVIDIA driver is installed (libcuda.so.1 was not found)")
    monkeypatch.setattr(runtime, "this_machine", lambda: none)
    with pytest.raises(UnavailableError, match="needs a CUDA device: no NVIDIA driver") as caught:
        BACKEND.load(folder, SPEC, {**DATA, "ffi": ffi_version()}, 1)
    assert "compile for this CPU" in caught.value.hint


def test_without_the_runtime_library_the_package_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "this_machine", lambda: Machine(frozenset(), (90,), ""))
    monkeypatch.setattr(runtime, "_CUDART", "libcudart.so.none")
    # where the tests have opened it, or TVM's CUDA part, this process has both
    monkeypatch.setattr(runtime, "open_cudart", runtime.open_cudart.__wrapped__)
    monkeypatch.setattr(runtime, "_open_cuda", runtime._open_cuda.__wrapped__)
    monkeypatch.setattr(tvm_ffi, "get_global_func", lambda *_: None)
    monkeypatch.setattr(runtime, "open_runtime", lambda folder: None)
    with pytest.raises(UnavailableError, match=r"libcudart\.so\.none was not found") as caught:
        BACKEND.load(folder, SPEC, {**DATA, "ffi": ffi_version()}, 1)
    assert "nvidia-cuda-runtime" in caught.value.hint


def test_code_of_another_architecture_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "this_machine", lambda: Machine(frozenset(), (120,), ""))
    monkeypatch.setattr(loader, "start_runtime", lambda folder, ffi: None)
    with pytest.raises(UnavailableError, match="has code for sm_90, and this GPU is sm_120"):
        BACKEND.load(folder, SPEC, DATA, 1)


@pytest.mark.parametrize(("device", "best"), [(80, 80), (86, 80), (89, 89), (90, 90)])
def test_the_nearest_code_below_the_device_is_taken(device: int, best: int) -> None:
    assert best_image((80, 89, 90), device) == best


@pytest.mark.parametrize(
    "shape",
    [
        *(FAMILIES[name] for name in ("sinks", "alibi", "chunks")),
        replace(SHAPE, windows=(0,)),
    ],
    ids=["sinks", "alibi", "chunks", "trees and adapters"],
)
def test_features_of_attention_and_steps_are_taken(shape: Dense) -> None:
    pipeline = INT8.replace("kv-cache", "kv-cache{tree=true}") + ",adapters{max=2,rank=16}"
    model = model_after(pipeline, shape)
    found = {BACKEND.supports(node, parse_target("cuda:sm_90")).reason for node in model.graph}
    assert found == {""}


def test_activations_of_16_bits_are_refused_by_name(tmp_path: Path) -> None:
    model = model_after(INT4_A16, replace(SHAPE, windows=(0,)))
    found = {BACKEND.supports(node, parse_target("cuda:sm_90")).reason for node in model.graph}
    assert found == {
        "",
        "activations of 16 bits have no CUDA kernels: quantize-weights.activation_bits=8",
    }
    with pytest.raises(UnsupportedError, match="activations of 16 bits have no CUDA kernels"):
        BACKEND.build(model, parse_target("cuda:sm_90"), tmp_path, OPTIONS)


def test_float_zero_points_are_refused_by_name() -> None:
    text = """y = optc.QuantizedMatMul <bits: int = 4, group_size: int = 32> (q, s, w, f, z)"""
    signature = "g (int8[T,32] q, float[T,1] s, uint4[32,8] w, float[1,8] f, float[1,8] z)"
    (node,) = model_of(f"{signature} => (float[T,8] y)", text).graph
    assert BACKEND.supports(node, parse_target("cuda:sm_90")).reason == (
        "float zero points have no CUDA kernels: quantize-weights.given=symmetric"
    )


@pytest.mark.parametrize("rotations", ["", "rotate-kv,rotate-activations,"])
def test_all_nodes_of_a_recipe_are_taken(rotations: str) -> None:
    target = parse_target("cuda:sm_80+sm_90")
    assert not BACKEND.takes(target)
    model = model_after(f"{rotations}{INT8}", replace(SHAPE, windows=(0,)))
    found = {attribute for node in model.graph for attribute in node.attributes}
    assert ("hadamard" in found) == bool(rotations)
    assert {BACKEND.supports(node, target).reason for node in _nodes(model)} == {""}


def _nodes(model: ir.Model) -> list[ir.Node]:
    return list(model.graph)


def test_measuring_a_cuda_engine_is_refused() -> None:
    with pytest.raises(UnavailableError, match="tvm-cuda measures no ceilings") as caught:
        measurable("tvm-cuda")
    assert caught.value.hint == "engines of tvm can be measured"
