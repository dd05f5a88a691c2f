"""From a `Program` to TVM's IR: Relax functions that call the kernels."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx

from optc.backends.tvm.compiling.relax_ops import relax_call
from optc.backends.tvm.isa import Isa
from optc.backends.tvm.program import Call, Dim, Function, Program, Tensor, kernel_names

#: Makes the PrimFunc of a kernel that is called.
MakeKernel = Callable[[Call], tirx.PrimFunc]
_KERNELS = "optc.backends.tvm.kernels"
#: Kernel name -> module, config class and function that makes the PrimFunc.
KERNELS: dict[str, tuple[str, str, str]] = {
    "quantize": ("token_wise.quantize", "Quantize", "quantize"),
    "block_hadamard": ("token_wise.hadamard", "BlockHadamard", "block_hadamard"),
    "pair_sum": ("token_wise.pair_sum", "PairSum", "pair_sum"),
    "rms_norm": ("token_wise.norm", "RMSNorm", "rms_norm"),
    "layer_norm": ("token_wise.layer_norm", "LayerNorm", "layer_norm"),
    "head_rms_norm": ("token_wise.norm", "HeadRMSNorm", "head_rms_norm"),
    "head_concat": ("kv.head_concat", "HeadConcat", "head_concat"),
    "gated_activation": ("token_wise.activation", "GatedActivation", "gated_activation"),
    "activation_quantize": (
        "token_wise.plain_activation",
        "ActivationQuantize",
        "activation_quantize",
    ),
    "pool_rows": ("token_wise.pool_rows", "PoolRows", "pool_rows"),
    "window_rows": ("token_wise.window_rows", "WindowRows", "window_rows"),
    "elementwise": ("token_wise.elementwise", "Elementwise", "elementwise"),
    "embedding": ("token_wise.embedding", "Embedding", "embedding"),
    "quantized_embedding": ("token_wise.embedding", "QuantizedEmbedding", "quantized_embedding"),
    "sparse_embedding": ("token_wise.sparse_embedding", "SparseEmbedding", "sparse_embedding"),
    "gather_rows": ("token_wise.gather_rows", "RowGather", "gather_rows"),
    "adapter_shrink": ("token_wise.adapters", "AdapterShrink", "adapter_shrink"),
    "adapter_grow": ("token_wise.adapters", "AdapterGrow", "adapter_grow"),
    "rotary_kv": ("kv.rotary_kv", "RotaryKV", "rotary_kv"),
    "rotary": ("kv.rotary_kv", "Rotary", "rotary"),
    "causal_conv": ("kv.causal_conv", "CausalConv", "causal_conv"),
    "linear_attention": ("kv.linear_attention", "LinearAttention", "linear_attention"),
    "write_kv": ("kv.rotary_kv", "WriteKV", "write_kv"),
    "paged_attention": ("attention.paged_attention", "PagedAttention", "paged_attention"),
    "residual_heads": ("token_wise.medusa_blocks", "ResidualHeads", "residual_heads"),
    "sampling": ("sampling.sampling", "Sampling", "sampling"),
    "copy_kv": ("kv.copy_kv", "CopyKV", "copy_kv"),
    "tree_kv": ("kv.tree_kv", "TreeKV", "tree_kv"),
    "int_matmul": ("matmul.int_tiles", "IntMatmul", "int_matmul"),
    "two_level_matmul": ("matmul.matmul_two_level", "TwoLevelMatmul", "two_level_matmul"),
    "sparse_matmul": ("matmul.matmul_sparse", "SparseMatmul", "sparse_matmul"),
    "top_k_router": ("experts.top_k_router", "TopKRouter", "top_k_router"),
    "expert_plan": ("experts.expert_plan", "ExpertPlan", "expert_plan"),
    "int_experts": ("experts.int_experts", "IntExperts", "int_experts"),
    "two_level_experts": ("experts.two_level_experts", "TwoLevelExperts", "two_level_experts"),
    "float_experts": ("experts.float_experts", "FloatExperts", "float_experts"),
    "combine_experts": ("experts.combine_experts", "CombineExperts", "combine_experts"),
    "split_heads": ("experts.head_rows", "SplitHeads", "split_heads"),
    "merge_heads": ("experts.head_rows", "MergeHeads", "merge_heads"),
    "float_matmul": ("matmul.matmul_float", "FloatMatmul", "float_matmul"),
}


def make_kernel(kernel: str, config: dict[str, Any], isa: Isa) -> tirx.PrimFunc:
    """The PrimFunc of one kernel configuration."""
    module_name, class_name, function_name = KERNELS[kernel]
    module = importlib.import_module(f"{_KERNELS}.{module_name}")
    return getattr(module, function_name)(getattr(module, class_name)(**config), isa)


def emit(program: Program, make: MakeKernel) -> tvm.IRModule:
    """The Relax module of ``program``; equal kernel configurations share one PrimFunc of
    ``make``."""
    emitter = _Emitter(make, relax.BlockBuilder(), kernel_names(program))
    for function in program.functions:
        emitter.function(function, program.bounds)
    return emitter.builder.get()


@dataclass
class _Emitter:
    make: MakeKernel
    builder: relax.BlockBuilder
    names: dict[str, str]
    kernels: dict[str, tvm.ir.GlobalVar] = field(default_factory=dict)

    def function(self, function: Function, bounds: dict[str, int]) -> None:
        symbols: dict[str, tirx.Var] = {}
        parameters = [relax.Var(t.name, _type(t, symbols)) for t in function.arguments]
        values = {t.name: p for t, p in zip(function.arguments, parameters, strict=True)}
        attributes = {"tir_var_upper_bound": bounds, "relax.force_pure": False}
        with self.builder.function(function.name, parameters, attrs=attributes, pure=False):
            for call in function.calls:
                self._call(call, values, symbols)
            results = [values[name] for name in (function.result, *function.more_results)]
            self.builder.emit_func_output(results if len(results) > 1 else results[0])

    def _call(self, call: Call, values: dict[str, Any], symbols: dict[str, tirx.Var]) -> None:
        operands = [values[name] for name in call.inputs]
        if call.kernel.startswith("relax."):
            expression = relax_call(call, operands)
            values[call.outputs[0].name] = self.builder.emit(expression)
            return
        function = self._kernel(call)
        fresh = [_type(t, symbols) for t in call.outputs]
        if call.updated:
            pools = [values[name] for name in call.updated]
            indices = [*range(len(operands), len(operands) + len(pools)), *(-1 for _ in fresh)]
            types = [*(pool.ty for pool in pools), *fresh]
            expression = relax.op.call_tir_inplace(function, [*operands, *pools], indices, types)
        else:
            types = fresh
            expression = relax.call_tir(function, operands, types if len(types) > 1 else types[0])
        result = self.builder.emit(expression)
        for position, tensor in enumerate(call.outputs, len(call.updated)):
            single = len(types) == 1
            item = result if single else self.builder.emit(relax.TupleGetItem(result, position))
            values[tensor.name] = item

    def _kernel(self, call: Call) -> tvm.ir.GlobalVar:
        if call.key not in self.kernels:
            function = self.make(call)
            name = self.names[call.key]
            function = function.with_attr("global_symbol", name)
            self.kernels[call.key] = self.builder.add_func(function, name)
        return self.kernels[call.key]


def _type(tensor: Tensor, symbols: dict[str, tirx.Var]) -> relax.TensorType:
    return relax.TensorType([_dim(d, symbols) for d in tensor.shape], tensor.dtype)


def _dim(dim: Dim, symbols: dict[str, tirx.Var]) -> Any:
    if isinstance(dim, int):
        return dim
    factor, _, sum_ = dim.rpartition("*")
    name, _, extra = sum_.partition("+")
    variable = symbols.setdefault(name, tirx.Var(name, "int64"))
    variable = variable + int(extra) if extra else variable
    return variable * int(factor) if factor else variable
