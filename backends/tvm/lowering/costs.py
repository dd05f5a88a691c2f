"""The necessary reads and operations of every kernel of a step (`optc.proof.roofline.costs`), from
the program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from optc.backends.tvm.program import Call, Dim, Program, Tensor, kernel_names
from optc.backends.tvm.weights.weights_file import tensor_bytes
from optc.ir.functions.mixing.recent_tokens import RECENT_TYPE
from optc.proof.roofline.costs import KernelCost, StepCosts, main_peak
from optc.runtime.executable.executable import KV_TYPES

#: Kernels that read single rows of their weights.
_LOOKUPS = ("embedding", "quantized_embedding", "sparse_embedding")
_EXPERTS = ("int_experts", "two_level_experts", "float_experts")
_INTEGER_MATMULS = ("int_matmul", "two_level_matmul", "sparse_matmul", *_EXPERTS[:2])
_MATMULS = (*_INTEGER_MATMULS, "float_matmul", "float_experts")


@dataclass
class _Total:
    """Costs added up over the calls of one kernel."""

    calls: int = 0
    peak: str = "fp32"
    bytes: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    ops: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    shape: str = ""

    def add(self, call: Call, weights: Mapping[str, Tensor], peaks: Collection[str]) -> None:
        """Add one call; ``weights`` are those of the step by name."""
        self.calls += 1
        self.peak = _peak(call, peaks)
        fixed = [weights[name] for name in call.inputs if name in weights]
        weight_bytes = sum(tensor_bytes(tensor) for tensor in fixed)
        config, (rows, times) = call.config, _rows(call)
        if call.kernel in _LOOKUPS:
            self.bytes[rows] += weight_bytes / config["vocab"]
            return
        if call.kernel in _EXPERTS and rows != "1":
            each, chosen = config["experts"], config["chosen"]
            self.bytes[f"{rows}:{chosen}of{each}"] += weight_bytes / each
        elif weight_bytes:
            self.bytes["1"] += weight_bytes
        if call.kernel in _MATMULS:
            self.ops[rows] += times * 2 * config["n"] * config["k"]
            self.shape = f"{config['n']}x{config['k']}"
        if call.kernel == "linear_attention":
            state = config["heads"] * config["key_dim"] * config["value_dim"]
            # a window of two tokens: the state is read, and written
            self.bytes[f"kv{config['group']}"] += 4 * state
            self.ops[rows] += times * state * (8 if config["delta"] else 6)
        if call.kernel == "paged_attention":
            dims = config["key_dim"] + config["value_dim"]
            element, scale = KV_TYPES[config["kv_dtype"]]
            kv_bytes = config["kv_heads"] * (dims * element + 2 * scale)
            self.bytes[f"kv{config['group']}"] += kv_bytes
            self.ops[f"pairs{config['group']}"] += 2 * config["heads"] * dims
            if config.get("recent"):  # of those tokens, the main pools are hardly read
                element, scale = KV_TYPES[RECENT_TYPE]
                kv_bytes = config["kv_heads"] * (dims * element + 2 * scale)
                self.bytes[f"kv{config['recent_group']}"] += kv_bytes

    def cost(self) -> KernelCost:
        """The sum."""
        return KernelCost(self.calls, self.peak, dict(self.bytes), dict(self.ops), self.shape)


def step_costs(program: Program, peaks: Collection[str]) -> StepCosts:
    """Costs of the program's function ``step``; operators that TVM lowers cost nothing here.

    ``peaks`` are the types that the target multiplies: without ``bf16``, bfloat16 is widened to
    float32, and without ``int4``, 4 bits to int8.
    """
    names = kernel_names(program)
    step = next(f for f in program.functions if f.name == "step")
    weights = {t.name: t for t in step.arguments if _is_fixed(t)}
    totals: defaultdict[str, _Total] = defaultdict(_Total)
    for call in step.calls:
        if call.key in names:
            totals[names[call.key]].add(call, weights, peaks)
    kernels = {name: total.cost() for name, total in totals.items()}
    return StepCosts(main_peak(kernels), kernels)


def _peak(call: Call, peaks: Collection[str]) -> str:
    multiplied = call.config.get("weight_dtype", call.config.get("kv_dtype"))
    if call.kernel in _INTEGER_MATMULS or multiplied in ("int8", "int4"):
        return "int4" if "int4" in peaks and call.config.get("bits", 8) < 8 else "int8"
    return "bf16" if "bf16" in peaks and multiplied == "bfloat16" else "fp32"


def _is_fixed(tensor: Tensor) -> bool:
    """Weights are the arguments without symbols; ``block_size`` is a number, not a weight."""
    return all(isinstance(d, int) for d in tensor.shape) and tensor.name != "block_size"


def _rows(call: Call) -> tuple[str, int]:
    """The rows of a call's first output: so many times ``T`` or ``R``, or ``1`` for a fixed number
    and for calls that only write into pools."""
    rows: Dim = call.outputs[0].shape[0] if call.outputs else 1
    if not isinstance(rows, str):
        return "1", 1
    factor, _, name = rows.rpartition("*")
    return name, int(factor or 1)
