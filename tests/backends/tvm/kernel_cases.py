"""Compiled kernels and helpers for the tests of kernels that are not matmuls."""

from __future__ import annotations

import os

os.environ.setdefault("TVM_NUM_THREADS", "2")

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm

from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.kernels.attention import paged_attention as attention
from optc.backends.tvm.kernels.dsl import pipeline
from optc.backends.tvm.kernels.experts import (
    combine_experts,
    expert_plan,
    float_experts,
    head_rows,
    int_experts,
    top_k_router,
    two_level_experts,
)
from optc.backends.tvm.kernels.kv import (
    causal_conv,
    copy_kv,
    head_concat,
    linear_attention,
    rotary_kv,
    tree_kv,
)
from optc.backends.tvm.kernels.sampling import sampling
from optc.backends.tvm.kernels.token_wise import (
    activation,
    adapters,
    elementwise,
    embedding,
    hadamard,
    layer_norm,
    norm,
    pair_sum,
    plain_activation,
    pool_rows,
    quantize,
    sparse_embedding,
    window_rows,
)
from optc.backends.tvm.kernels.token_wise import gather_rows as rows
from optc.system.hardware.platforms import AARCH64
from optc.system.hardware.target import host_features, known_targets
from tests.arm import kernels as arm
from tests.arm.kernels import target_of

Array = npt.NDArray[Any]
TARGETS = ("x86-64-v4-vnni", "x86-64-v3")
_FUNCTIONS: dict[type, Any] = {
    quantize.Quantize: quantize.quantize,
    hadamard.BlockHadamard: hadamard.block_hadamard,
    pair_sum.PairSum: pair_sum.pair_sum,
    norm.RMSNorm: norm.rms_norm,
    layer_norm.LayerNorm: layer_norm.layer_norm,
    plain_activation.ActivationQuantize: plain_activation.activation_quantize,
    pool_rows.PoolRows: pool_rows.pool_rows,
    window_rows.WindowRows: window_rows.window_rows,
    norm.HeadRMSNorm: norm.head_rms_norm,
    activation.GatedActivation: activation.gated_activation,
    elementwise.Elementwise: elementwise.elementwise,
    embedding.Embedding: embedding.embedding,
    embedding.QuantizedEmbedding: embedding.quantized_embedding,
    sparse_embedding.SparseEmbedding: sparse_embedding.sparse_embedding,
    rows.RowGather: rows.gather_rows,
    adapters.AdapterShrink: adapters.adapter_shrink,
    adapters.AdapterGrow: adapters.adapter_grow,
    head_concat.HeadConcat: head_concat.head_concat,
    rotary_kv.RotaryKV: rotary_kv.rotary_kv,
    rotary_kv.Rotary: rotary_kv.rotary,
    rotary_kv.WriteKV: rotary_kv.write_kv,
    attention.PagedAttention: attention.paged_attention,
    causal_conv.CausalConv: causal_conv.causal_conv,
    copy_kv.CopyKV: copy_kv.copy_kv,
    linear_attention.LinearAttention: linear_attention.linear_attention,
    top_k_router.TopKRouter: top_k_router.top_k_router,
    expert_plan.ExpertPlan: expert_plan.expert_plan,
    int_experts.IntExperts: int_experts.int_experts,
    two_level_experts.TwoLevelExperts: two_level_experts.two_level_experts,
    float_experts.FloatExperts: float_experts.float_experts,
    combine_experts.CombineExperts: combine_experts.combine_experts,
    head_rows.SplitHeads: head_rows.split_heads,
    head_rows.MergeHeads: head_rows.merge_heads,
    sampling.Sampling: sampling.sampling,
    tree_kv.TreeKV: tree_kv.tree_kv,
}


#: Stands for an instruction set: kernels run on this machine's CUDA device instead.
DEVICE: Any = "cuda"


def isa_named(target: str) -> Isa:
    """The instruction set of a target; skips the test where this machine lacks it."""
    if target == DEVICE:
        return DEVICE  # type: ignore[no-any-return]
    wanted = known_targets()[target_of(target)]
    missing = wanted.missing_on(host_features())
    if missing and wanted.processor != AARCH64:
        pytest.skip(f"this machine lacks {', '.join(missing)}")
    return isa_of(wanted)


@cache
def compiled(config: Any, isa: Isa) -> Any:
    """The compiled library of a kernel, called ``main``."""
    function = _FUNCTIONS[type(config)](config, isa).with_attr("global_symbol", "main")
    return tvm.compile(
        tvm.IRModule({"main": function}), isa.tvm_target(), tir_pipeline=pipeline.register()
    )


def run(config: Any, isa: Isa, *arrays: Array) -> list[Array]:
    """Call a kernel on copies of ``arrays``; returns all of them as they are afterwards."""
    if isa == DEVICE:
        from tests.backends.tvm_cuda import device_kernels

        return device_kernels.run(config, *arrays)
    if isa.arm:
        return arm.run(compiled(config, isa), "main", isa, list(arrays))
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(array), tvm.cpu()) for array in arrays]
    compiled(config, isa)["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


def blank(*shape: int, dtype: str = "float32") -> Array:
    """An output that no kernel leaves as it is: NaN, or 99."""
    return np.full(shape, np.nan if dtype == "float32" else 99, dtype)


def blank_quantized(rows: int, width: int, bits: int = 8) -> tuple[Array, Array, Array]:
    """Outputs q, s, qsum."""
    padded, rows = -(-width // 32) * 32, rows * bits // 8
    return (
        blank(rows, padded, dtype="int8"),
        blank(rows),
        blank(rows, padded // 32, dtype="int32"),
    )


def quantized(values: Array) -> tuple[Array, Array, Array]:
    """The oracle: q, s, qsum of float32 rows."""
    rows, width = values.shape
    scale = np.abs(values).max(axis=1) / np.float32(127)
    scale[scale == 0] = 1
    q, _, sums = (np.zeros_like(a) for a in blank_quantized(rows, width))
    q[:, :width] = np.round(values / scale[:, None])
    sums[:] = q.reshape(rows, -1, 32).astype(np.int32).sum(axis=2)
    return q, scale, sums


def quantized_16(values: Array) -> tuple[Array, Array, Array]:
    """The oracle of 16 bits: a high and a low row for each, of which q = 255 high + low."""
    rows, width = values.shape
    scale = np.abs(values).max(axis=1) / np.float32(32512)
    scale[scale == 0] = 1
    whole = np.round(values / scale[:, None]).astype(np.int32)
    high = (whole + 127) // 255
    q, _, sums = (np.zeros_like(a) for a in blank_quantized(rows, width, 16))
    q[::2, :width], q[1::2, :width] = high, whole - 255 * high
    sums[:] = q.reshape(2 * rows, -1, 32).astype(np.int32).sum(axis=2)
    return q, np.stack([scale * np.float32(255), scale], axis=1).reshape(-1), sums


def sqnr(value: Array, reference: Array) -> float:
    """Signal to noise ratio in dB."""
    reference = reference.astype(np.float64)
    noise = np.square(reference - value).sum()
    return float(10 * np.log10(np.square(reference).sum() / max(noise, 1e-300)))
