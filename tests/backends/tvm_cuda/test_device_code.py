"""Kernels compiled for real architectures, by the compiler that is here; inspected, not run."""

from __future__ import annotations

import os

os.environ.setdefault("TVM_NUM_THREADS", "2")

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tvm
import tvm_ffi

from optc.backends.tvm.compiling.emit import KERNELS
from optc.backends.tvm.kernels.attention.paged_attention import PagedAttention
from optc.backends.tvm.kernels.experts.combine_experts import CombineExperts
from optc.backends.tvm.kernels.experts.expert_plan import ExpertPlan
from optc.backends.tvm.kernels.experts.float_experts import FloatExperts
from optc.backends.tvm.kernels.experts.int_experts import IntExperts
from optc.backends.tvm.kernels.experts.top_k_router import TopKRouter
from optc.backends.tvm.kernels.kv.rotary_kv import RotaryKV
from optc.backends.tvm.kernels.kv.tree_kv import TreeKV
from optc.backends.tvm.kernels.matmul.matmul_float import FloatMatmul
from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm.kernels.token_wise.activation import GatedActivation
from optc.backends.tvm.kernels.token_wise.adapters import AdapterGrow, AdapterShrink
from optc.backends.tvm.kernels.token_wise.norm import RMSNorm
from optc.backends.tvm.kernels.token_wise.quantize import Quantize
from optc.backends.tvm_cuda import toolchain
from optc.backends.tvm_cuda.gpu import tvm_target
from optc.backends.tvm_cuda.images import CREATE, EDIT, key_of
from optc.backends.tvm_cuda.kernels.launch import device_source
from optc.backends.tvm_cuda.kernels.table import FUNCTIONS, device_function
from optc.backends.tvm_cuda.toolchain import device_compiler
from optc.errors import UnavailableError, UnsupportedError
from optc.system.hardware.target import cuda_target
from tests.backends.tvm_cuda.cubins import HMMA, IMMA, LDGSTS, architecture, frames, opcodes

MATMULS = {
    "int8": IntMatmul(512, 1024),
    "int4": IntMatmul(512, 1024, 4, 64),
    "bf16": FloatMatmul(512, 1024, "bfloat16"),
    "fp32": FloatMatmul(512, 1024, "float32"),
}
#: One type of KV on the ordinary units, one of each kind on tensor cores.
KV: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16": {"kv_dtype": "bfloat16"},
    "int8": {"kv_dtype": "int8", "query_bits": 8},
}


@cache
def emitted(*names: str) -> str:
    """The device code of matmuls."""
    kinds = {"int8": "int_matmul", "int4": "int_matmul", "bf16": "float_matmul"}
    return emit(
        {
            name: device_function(kinds.get(name, "float_matmul"), MATMULS[name])
            for name in names or MATMULS
        }
    )


@cache
def attention(dim: int, sm: int, types: tuple[str, ...]) -> bytes:
    """The cubin of attention by heads of a dimension, with KV of these types."""
    configs = {name: PagedAttention(16, 4, dim, dim, 0.09, **KV[name]) for name in types}
    functions = {name: device_function("paged_attention", c) for name, c in configs.items()}
    return device_compiler()(emit(functions), sm)


def emit(functions: dict[str, tvm.tirx.PrimFunc]) -> str:
    """The device code of functions of TIR."""
    codes: list[str] = []

    def take(code: str, _: Any) -> str:
        codes.append(device_source(code))
        return key_of("0")

    tvm_ffi.register_global_func(EDIT, take, override=True)
    if tvm_ffi.get_global_func(CREATE, True) is not None:
        tvm_ffi.remove_global_func(CREATE)
    named = {name: f.with_attr("global_symbol", name) for name, f in functions.items()}
    tvm.compile(tvm.IRModule(named), tvm_target(cuda_target(80)))
    return codes[0]


#: Between the oldest and the newest; attention and experts are compiled for it.
@pytest.mark.parametrize("sm", [80, pytest.param(90, marks=pytest.mark.long), 100])
def test_matmuls_use_the_tensor_cores_of_their_architecture(sm: int) -> None:
    cubin = device_compiler()(emitted(), sm)
    assert architecture(cubin) == sm
    kernels = opcodes(cubin)
    # for few rows, by four numbers of them, and for many; int8 has larger tiles, too; float32 one
    assert len(kernels) == (4 + 2) + (4 + 1) + (4 + 1) + 1
    for name, counts in kernels.items():
        wanted = {"int8": IMMA, "int4": IMMA, "bf16": HMMA}.get(name.split("_")[0])
        assert {op for op in (IMMA, HMMA) if counts[op]} == ({wanted} if wanted else set()), name
    copied_ahead = {name for name, counts in kernels.items() if counts[LDGSTS]}
    assert len(copied_ahead) == 2 + 1 + 1  # those for many rows on tensor cores
    assert {name.split("_")[0] for name in copied_ahead} == {"int8", "int4", "bf16"}


#: 128 is the widest common head, 192 the widest with all warps. What is said of one architecture is
#: seldom wrong of the next, whose matmuls are compiled above.
@pytest.mark.parametrize(
    ("dim", "sm"), [(16, 80), pytest.param(16, 89, marks=pytest.mark.long), (128, 90)]
)
def test_attention_over_narrow_pools_uses_the_tensor_cores(dim: int, sm: int) -> None:
    """Rows alone and their ranges multiply as tiles of rows do; what merges them does not."""
    kernels = opcodes(attention(dim, sm, tuple(KV)))
    found: dict[str, list[bool]] = {}
    for name, counts in sorted(kernels.items()):
        found.setdefault(name.split("_")[0], []).append(counts[HMMA] > 0)
    assert {name: sorted(uses) for name, uses in found.items()} == {
        "fp32": [False, False, False],
        "bf16": [False, True, True, True],
        "int8": [False, True, True, True],
    }


@pytest.mark.parametrize(
    ("dim", "types"),
    [
        (128, tuple(KV)),
        (256, ("int8",)),  # it holds scales besides, and the most of a row
        pytest.param(192, tuple(KV), marks=pytest.mark.long),
        pytest.param(256, tuple(KV), marks=pytest.mark.long),
    ],
)
def test_registers_hold_what_attention_computes(dim: int, types: tuple[str, ...]) -> None:
    """But some bytes that the compiler gives up by itself, to have more warps at once."""
    found = frames(attention(dim, 90, types))
    assert len(found) >= 2 * len(types) + 1
    assert max(found) <= 16


def test_registers_hold_the_rows_and_heads_that_are_rotated() -> None:
    configs = {
        "rms_norm": RMSNorm(4096, 1e-5, residual=True, quantized=True, hadamard=256),
        "quantize": Quantize(577, hadamard=256),
        "rotary_kv": RotaryKV(32, 8, 128, 128, 128, kv_dtype="int8", hadamard=64),
    }
    functions = {name: device_function(name, config) for name, config in configs.items()}
    found = frames(device_compiler()(emit(functions), 90))
    assert len(found) >= len(configs)
    assert max(found) == 0


def test_experts_adapters_and_trees_are_compiled_and_held_by_registers() -> None:
    """Experts by numbers multiply on the tensor cores, and no kernel here needs local memory but
    what the compiler gives up by itself."""
    configs: dict[str, Any] = {
        "int8": IntExperts(768, 2048, experts=128, chosen=8, spread=True),
        "int4": IntExperts(768, 2048, 4, 64, experts=128, chosen=8, spread=True),
        "bf16": FloatExperts(768, 2048, "bfloat16", experts=128, chosen=8),
        "router": TopKRouter(128, 8, "sigmoid", True, 1e-20, 2.5, 8, 4, "top2_sum", True),
        "plan": ExpertPlan(128, 8),
        "combine": CombineExperts(2048, 8),
        "shrink": AdapterShrink(2048, 48, quantized=True),
        "grow": AdapterGrow(3072, 16, (0, 2048, 2560)),
        "tree": TreeKV(8, 128, 128, kv_dtype="int8"),
        "gate": GatedActivation(2880, "silu", alpha=1.702, limit=7.0, up_shift=1.0),
        "sinks": PagedAttention(
            16, 4, 64, 64, 0.1, kv_dtype="int8", chunk=96, sinks=True, slopes=True
        ),
    }
    names = {c: name for name, (_, c, _) in KERNELS.items()}
    functions = {key: device_function(names[type(c).__name__], c) for key, c in configs.items()}
    cubin = device_compiler()(emit(functions), 90)
    found = {name.split("_")[0]: counts for name, counts in opcodes(cubin).items()}
    assert set(found) == set(configs)
    wanted = {"int8": IMMA, "int4": IMMA, "bf16": HMMA}
    assert all(found[name][op] for name, op in wanted.items())
    assert max(frames(cubin)) <= 16


def test_every_kernel_of_the_table_is_one_of_the_cpu() -> None:
    assert set(FUNCTIONS) < set(KERNELS)
    with pytest.raises(UnsupportedError, match="sampling has no CUDA kernel"):
        device_function("sampling", None)


def test_code_that_is_refused_names_the_compiler_and_the_error() -> None:
    with pytest.raises(UnavailableError, match=r"cannot compile the kernels for sm_90: .*no_such"):
        device_compiler()("__global__ void k() { no_such(); }", 90)


def test_without_a_compiler_the_message_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "_find_nvrtc", lambda: None)
    with pytest.raises(UnavailableError, match="neither nvcc on the PATH nor NVRTC") as caught:
        device_compiler()
    assert "optc[cuda]" in caught.value.hint


def test_nvcc_and_nvrtc_both_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whichever are installed; at least one is."""
    found: list[Callable[[str, int], bytes]] = []
    for path in (os.environ["PATH"], str(tmp_path)):
        monkeypatch.setenv("PATH", path)
        try:
            found.append(device_compiler())
        except UnavailableError:
            assert found
            continue
        assert architecture(found[-1](emitted("bf16"), 90)) == 90
