"""A tiny ragged step whose MLPs are mixtures of experts, a type of weights a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import make_node
from tests.backends.tvm.engine_driver import SHAPE
from tests.support.families import FUSED, model_after

#: Experts, and experts of a token.
EXPERTS, CHOSEN = 6, 2
#: Channels of an expert's MLP: ragged, or where there are groups of 32.
INNER, INNER_OF_GROUPS = 40, 32
#: Types of weights by layer.
KINDS = ("fp32", "bf16", "int8", "int4", "two-level")
ROUTER: dict[str, int | float | str] = {
    "top_k": CHOSEN,
    "scoring": "softmax",
    "normalize": 1,
    "norm_epsilon": 0.0,
    "scale": 1.0,
    "groups": 1,
    "top_groups": 1,
    "group_score": "max",
}


def mixture_model(kinds: Sequence[str] = KINDS) -> ir.Model:
    """A seeded model, the k-th layer of which has experts of the k-th kind."""
    shape = replace(SHAPE, windows=(0,) * len(kinds), logit_softcap=0.0, softcap=0.0)
    model = model_after(FUSED, shape)
    gates = [node for node in model.graph if node.op_type == "GatedActivation"]
    for index, (gate, kind) in enumerate(zip(gates, kinds, strict=True)):
        _Mixture(model, kind, index).replace(gate)
    return model


@dataclass
class _Mixture:
    """Replaces the MLP of a layer."""

    model: ir.Model
    kind: str
    layer: int
    rng: np.random.Generator = field(init=False)
    nodes: list[ir.Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.layer)

    def replace(self, gate: ir.Node) -> None:
        first, last = gate.inputs[0].producer(), next(iter(gate.outputs[0].uses())).node
        x, width = first.inputs[0], SHAPE.hidden
        router = self.constant("router", self.normal(width, EXPERTS))
        logits = self.add(ir.Node("", "MatMul", [x, router]))
        bias = self.constant("correction", self.rng.uniform(-0.1, 0.1, EXPERTS))
        weights, experts = self.ours("TopKRouter", [logits[0], bias], ROUTER)
        quantized = self.kind not in ("fp32", "bf16")
        active = "GatedActivationQuantize" if quantized else "GatedActivation"
        rows = self.ours("QuantizeActivation", [x]) if quantized else [x]
        channels = INNER_OF_GROUPS if self.kind in ("int4", "two-level") else INNER
        both = self.matmul("gate_up", rows, experts, (width, 2 * channels), spread=1)
        inner = self.ours(active, both, {"activation": "silu"})
        down = self.matmul("down", inner, experts, (channels, width), spread=0)
        (combined,) = self.ours("CombineExperts", [*down, weights])
        self.model.graph.insert_before(last, self.nodes)
        last.outputs[0].replace_all_uses_with(combined)
        self.model.graph.remove([last, gate, first], safe=True)

    def matmul(
        self, name: str, x: list[ir.Value], experts: ir.Value, shape: tuple[int, int], spread: int
    ) -> list[ir.Value]:
        k, n = shape
        attributes: dict[str, int | float | str] = {"num_experts": EXPERTS, "spread": spread}
        bias = self.constant(f"{name}.bias", self.rng.standard_normal(EXPERTS * n))
        if self.kind in ("fp32", "bf16"):
            weight = self.normal(k, EXPERTS * n)
            if self.kind == "bf16":
                weight = weight.astype(ml_dtypes.bfloat16)
            op_type = "ExpertMatMul" if self.kind == "fp32" else "Bf16ExpertMatMul"
            operands = [*x, experts, self.constant(name, weight), bias]
            return self.ours(op_type, operands, attributes)
        weight, scale, zero, group_scale = self.quantized(name, k, EXPERTS * n)
        form = {"bits": 4, "group_size": 32}
        if self.kind == "int8":
            form = {"bits": 8, "group_size": 0}
        operands = [*x, experts, weight, scale, zero, bias, group_scale]
        return self.ours("QuantizedExpertMatMul", operands, {**form, **attributes})

    def quantized(self, name: str, k: int, n: int) -> list[ir.Value | None]:
        """Weight, scales, zero points and integer scales."""
        rng, steps = self.rng, self.rng.uniform(0.8, 1.2, (max(1, k // 32), n)) * k**-0.5
        parts: list[npt.NDArray[Any] | None]
        if self.kind == "int8":
            parts = [rng.integers(-127, 128, (k, n)).astype(np.int8), steps[0] / 70, None, None]
        elif self.kind == "int4":
            values = rng.integers(0, 16, (k, n)).astype(ml_dtypes.uint4)
            zeros = rng.integers(6, 10, steps.shape).astype(ml_dtypes.uint4)
            parts = [values, (steps / 5).astype(np.float16).astype(np.float32), zeros, None]
        else:
            values = rng.integers(0, 16, (k, n)).astype(ml_dtypes.uint4)
            factors = rng.integers(8, 17, steps.shape)
            zeros = np.maximum(factors * 15 - 127, np.minimum(factors * 8, 128)).astype(np.uint8)
            parts = [values, steps[0] / 60, zeros, factors.astype(np.uint8)]
        names = ("", ".scale", ".zero", ".group_scale")
        return [
            None if part is None else self.constant(name + end, part)
            for end, part in zip(names, parts, strict=True)
        ]

    def normal(self, rows: int, columns: int) -> npt.NDArray[Any]:
        return (self.rng.standard_normal((rows, columns)) * rows**-0.5).astype(np.float32)

    def constant(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        full = f"{self.layer}.{name}"
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        tensor = ir.tensor(array, name=full)
        value = ir.Value(
            name=full,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape),
            const_value=tensor,
        )
        self.model.graph.register_initializer(value)
        return value

    def ours(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: dict[str, int | float | str] | None = None,
    ) -> list[ir.Value]:
        return self.add(make_node(self.model, op_type, inputs, attributes))

    def add(self, node: ir.Node) -> list[ir.Value]:
        node.name = f"{self.layer}.{node.op_type}.{len(self.nodes)}"
        for index, value in enumerate(node.outputs):
            value.name = f"{node.name}.{index}"
            value.type = value.type or ir.TensorType(ir.DataType.FLOAT)
        self.nodes.append(node)
        return list(node.outputs)
