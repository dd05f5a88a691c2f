"""A small llama-like model in dense form, built in code."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.forms.decoder import Dense
from optc.ir.functions import make_node
from optc.ir.weights import LazyWeight, as_lazy

D, H, HKV, HEAD, FF, V = 48, 4, 2, 16, 80, 97


class DenseBuilder:
    """Adds nodes to a graph; every method returns the output value."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        tokens = ir.Value(
            name="input_ids", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(["B", "S"])
        )
        positions = ir.Value(
            name="position_ids", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(["B", "S"])
        )
        graph = ir.Graph([tokens, positions], [], nodes=[], opset_imports={"": 23}, name="dense")
        self.model = ir.Model(graph, ir_version=10)
        self.tokens, self.positions = tokens, positions
        self.reads: list[tuple[str, int, int]] = []

    def weight(self, name: str, n: int, k: int, *, transposed: bool = True) -> ir.Value:
        rows = (self.rng.standard_normal((n, k)) / np.sqrt(k)).astype(np.float32)
        return self.initializer(name, self.lazy(name, rows, transposed=transposed))

    def lazy(self, name: str, rows: np.ndarray, *, transposed: bool) -> LazyWeight:
        def read(start: int, stop: int) -> np.ndarray:
            self.reads.append((name, start, stop))
            return rows[start:stop]

        return LazyWeight(read, rows.shape, ir.DataType.FLOAT, name, transposed=transposed)

    def vector(self, name: str, size: int) -> ir.Value:
        array = (1 + 0.1 * self.rng.standard_normal(size)).astype(np.float32)
        return self.constant(name, array)

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        return self.initializer(name, ir.Tensor(array, name=name))

    def initializer(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        value = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        self.model.graph.register_initializer(value)
        return value

    def op(self, op_type: str, *inputs: ir.Value, outputs: int = 1, **attributes: object):
        node = ir.node(op_type, inputs, attributes, num_outputs=outputs)
        for value in node.outputs:
            value.type = ir.TensorType(ir.DataType.FLOAT)
        self.model.graph.append(node)
        return node.outputs[0] if outputs == 1 else node.outputs

    def own(self, op_type: str, *inputs: ir.Value, **attributes: object) -> ir.Value:
        node = make_node(self.model, op_type, inputs, attributes)
        self.model.graph.append(node)
        return node.outputs[0]

    def angles(self) -> tuple[ir.Value, ir.Value]:
        """cos and sin [B, S, HEAD / 2] from the positions."""
        axis = self.constant("axis", np.array([-1], np.int64))
        frequency = 10000.0 ** (-np.arange(0, HEAD, 2) / HEAD)
        inverse = self.constant("inv_freq", frequency.astype(np.float32))
        cast = self.op("Cast", self.positions, to=1)
        angle = self.op("Mul", self.op("Unsqueeze", cast, axis), inverse)
        return self.op("Cos", angle), self.op("Sin", angle)

    def layer(self, x: ir.Value, cos: ir.Value, sin: ir.Value, i: int, window: int) -> ir.Value:
        normed = self.op("RMSNormalization", x, self.vector(f"l{i}.norm1", D), axis=-1)
        q, k, v = (
            self.op("MatMul", normed, self.weight(f"l{i}.{name}", n * HEAD, D))
            for name, n in (("q", H), ("k", HKV), ("v", HKV))
        )
        q = self.op("RotaryEmbedding", q, cos, sin, num_heads=H)
        k = self.op("RotaryEmbedding", k, cos, sin, num_heads=HKV)
        heads = {"num_heads": H, "kv_num_heads": HKV, "scale": HEAD**-0.5}
        out = self.own("Attention", q, k, v, **heads, softcap=0.0, window=window)
        x = self.op("Add", x, self.op("MatMul", out, self.weight(f"l{i}.o", D, H * HEAD)))
        normed = self.op("RMSNormalization", x, self.vector(f"l{i}.norm2", D), axis=-1)
        gate = self.op("MatMul", normed, self.weight(f"l{i}.gate", FF, D))
        up = self.op("MatMul", normed, self.weight(f"l{i}.up", FF, D))
        silu = self.op("Mul", gate, self.op("Sigmoid", gate))
        down = self.op("MatMul", self.op("Mul", silu, up), self.weight(f"l{i}.down", D, FF))
        return self.op("Add", x, down)

    def finish(self, x: ir.Value, table: ir.Value, *, softcap: float, bias: bool) -> ir.Value:
        x = self.op("RMSNormalization", x, self.vector("norm", D), axis=-1)
        assert table.const_value is not None
        head = as_lazy(table.const_value).transpose()
        logits = self.op("MatMul", x, self.initializer("head", head))
        if bias:
            logits = self.op("Add", logits, self.vector("head_bias", V))
        if softcap:
            cap = self.constant("cap", np.array(softcap, np.float32))
            logits = self.op("Mul", self.op("Tanh", self.op("Div", logits, cap)), cap)
        return logits


def dense_builder(
    layers: int = 3, *, seed: int = 0, window: int = 0, softcap: float = 0.0, bias: bool = False
) -> DenseBuilder:
    """A dense-form llama; ``window`` applies to every other layer."""
    b = DenseBuilder(seed)
    table = b.weight("embedding", V, D, transposed=False)
    cos, sin = b.angles()
    x = b.op("Gather", table, b.tokens)
    for i in range(layers):
        x = b.layer(x, cos, sin, i, window if i % 2 else 0)
    logits = b.finish(x, table, softcap=softcap, bias=bias)
    logits.name = "logits"
    logits.type = ir.TensorType(ir.DataType.FLOAT)
    b.model.graph.outputs.append(logits)
    Dense().attach(b.model)
    return b


def dense_model(layers: int = 3, **options) -> ir.Model:
    """The model of `dense_builder`."""
    return dense_builder(layers, **options).model
