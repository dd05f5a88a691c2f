"""Tiny decoders in the dense normal form, built in code with seeded weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.forms import decoder
from optc.ir.functions import make_node
from optc.ir.weights import LazyWeight, as_lazy
from tests.support.layers.convolution import short_convolution
from tests.support.layers.latent import latent_heads
from tests.support.layers.recurrence import recurrence

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Dense:
    """Shape of a tiny decoder; every field is a variation that some family uses."""

    hidden: int = 32
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    inner: int = 48
    vocab: int = 61
    windows: tuple[int, ...] = (0, 0)
    chunks: tuple[int, ...] = ()
    sinks: bool = False
    alibi: bool = False
    softcap: float = 0.0
    logit_softcap: float = 0.0
    rotary_dim: int = 8
    qkv_bias: bool = False
    qk_norm: bool = False
    wide_qk_norm: bool = False
    fused: bool = False
    tied: bool = False
    activation: str = "silu"
    gated: bool = True
    mlp_bias: bool = False
    layer_norms: bool = False
    pre_norms: bool = True
    post_norms: bool = False
    #: Last layers that read the keys and values of the one before them.
    shared_kv: int = 0
    #: Width of an embedding of each layer, from a table and a projection of the hidden state.
    layer_inputs: int = 0
    #: Width of the latents that queries, keys and values come from.
    latent: int = 0
    #: Tokens that the convolution of each layer reads, which stands in the place of its attention;
    #: 0 where there is none.
    convolutions: tuple[int, ...] = ()
    #: Of each layer, the recurrence that stands in the place of its attention: ``delta``,
    #: ``plain``, or nothing.
    recurrences: tuple[str, ...] = ()
    seed: int = 0

    @property
    def value_dim(self) -> int:
        return self.head_dim - self.rotary_dim if self.latent else self.head_dim

    @property
    def layers(self) -> int:
        return len(self.windows)

    @property
    def attentions(self) -> list[int]:
        """The layers that attend."""
        others = [any(each) for each in zip(*self._others, strict=True)] or [False] * self.layers
        return [index for index, other in enumerate(others) if not other]

    @property
    def _others(self) -> list[tuple[Any, ...]]:
        return [each for each in (self.convolutions, self.recurrences) if each]


class DenseBuilder:
    """Appends nodes of the dense form to one graph."""

    def __init__(self, shape: Dense) -> None:
        self.shape = shape
        self.random = np.random.default_rng(shape.seed)
        inputs = [
            ir.Value(
                name=name,
                type=ir.TensorType(ir.DataType.INT64),
                shape=ir.Shape(["B", "S"]),
            )
            for name in ("input_ids", "position_ids")
        ]
        graph = ir.Graph(inputs, [], nodes=[], opset_imports={"": 23, "optc": 1}, name="dense")
        self.model = ir.Model(graph, ir_version=10)
        self.graph = graph
        self.names: dict[str, int] = {}
        self.shared: tuple[ir.Value, ir.Value] | None = None

    def name(self, base: str) -> str:
        self.names[base] = self.names.get(base, 0) + 1
        return base if self.names[base] == 1 else f"{base}_{self.names[base]}"

    def constant(self, tensor: ir.TensorProtocol, name: str) -> ir.Value:
        value = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape),
            const_value=tensor,
        )
        self.graph.register_initializer(value)
        return value

    def vector(self, name: str, size: int, around: float = 1.0) -> ir.Value:
        data = (around + 0.1 * self.random.standard_normal(size)).astype(np.float32)
        return self.constant(ir.tensor(data, name=name), name)

    def weight(self, name: str, rows: int, columns: int) -> LazyWeight:
        scale = columns**-0.5
        data = (scale * self.random.standard_normal((rows, columns))).astype(np.float32)
        return as_lazy(ir.tensor(data, name=name))

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value],
        width: int | None = None,
        outputs: int = 1,
        **attributes: Any,
    ) -> Any:
        node = ir.Node(
            "",
            op_type,
            inputs,
            ir.convenience.convert_attributes(attributes),
            num_outputs=outputs,
            name=self.name(op_type.lower()),
        )
        for value in node.outputs:
            value.name = self.name(f"{op_type.lower()}_out")
            value.type = ir.TensorType(ir.DataType.FLOAT)
            value.shape = None if width is None else ir.Shape(["B", "S", width])
        self.graph.append(node)
        return node.outputs[0] if outputs == 1 else list(node.outputs)

    def ours(
        self, op_type: str, inputs: Sequence[ir.Value | None], width: int, **attributes: Any
    ) -> Any:
        name = self.name(op_type.lower())
        node = make_node(
            self.model,
            op_type,
            inputs,
            attributes,
            outputs=[f"{name}_out"],
            shapes=[["B", "S", width]],
            name=name,
        )
        self.graph.append(node)
        return node.outputs[0]

    def linear(self, x: ir.Value, name: str, inner: int, outer: int, bias: bool = False) -> Any:
        weight = self.weight(f"{name}.weight", outer, inner).transpose()
        out = self.op("MatMul", [x, self.constant(weight, f"{name}.weight")], outer)
        if bias:
            out = self.op("Add", [out, self.vector(f"{name}.bias", outer, 0.0)], outer)
        return out

    def norm(self, x: ir.Value, name: str, width: int | None = None) -> Any:
        width = width or self.shape.hidden
        operands = [x, self.vector(f"{name}.weight", width)]
        if self.shape.layer_norms:
            operands.append(self.vector(f"{name}.bias", width, 0.0))
        kind = "LayerNormalization" if self.shape.layer_norms else "RMSNormalization"
        return self.op(kind, operands, width, axis=-1, epsilon=1e-5)


#: Appends the MLP of layer ``index`` over x [B, S, hidden]; its result.
Mlp = Callable[[DenseBuilder, ir.Value, int], ir.Value]


def dense_model(shape: Dense, mlp: Mlp | None = None) -> ir.Model:
    """The decoder as an `ir.Model` in dense form, weights lazy; ``mlp`` in the place of its own."""
    b = DenseBuilder(shape)
    ids, positions = b.graph.inputs
    table = b.weight("embed.weight", shape.vocab, shape.hidden)
    x = b.op("Gather", [b.constant(table, "embed.weight"), ids], shape.hidden, axis=0)
    rotary = _rotary_table(b, positions) if shape.rotary_dim else None
    own = _layer_inputs(b, ids, x) if shape.layer_inputs else None
    for index, window in enumerate(shape.windows):
        h = b.norm(x, f"{index}.input_norm") if shape.pre_norms else x
        if shape.convolutions and (kernel := shape.convolutions[index]):
            h = short_convolution(b, h, index, kernel)
        elif shape.recurrences and (kind := shape.recurrences[index]):
            h = recurrence(b, h, index, delta=int(kind == "delta"))
        else:
            h = _attention(b, h, index, window, rotary)
        if shape.post_norms:
            h = b.norm(h, f"{index}.post_norm")
        x = b.op("Add", [x, h], shape.hidden)
        h = (mlp or _mlp)(b, b.norm(x, f"{index}.mlp_norm") if shape.pre_norms else x, index)
        if not shape.pre_norms:
            h = b.norm(h, f"{index}.mlp_norm")
        x = b.op("Add", [x, h], shape.hidden)
        if own is not None:
            x = _take_layer_input(b, x, own, index)
    x = b.norm(x, "final_norm")
    head = table if shape.tied else b.weight("head.weight", shape.vocab, shape.hidden)
    logits = b.op("MatMul", [x, b.constant(head.transpose(), "head.weight")], shape.vocab)
    if shape.logit_softcap:
        cap = b.constant(ir.tensor(np.float32(shape.logit_softcap)), "cap")
        logits = b.op("Div", [logits, cap], shape.vocab)
        logits = b.op("Mul", [b.op("Tanh", [logits], shape.vocab), cap], shape.vocab)
    logits.name = "logits"
    b.graph.outputs.append(logits)
    decoder.Dense().attach(b.model)
    return b.model


def _layer_inputs(b: DenseBuilder, ids: ir.Value, x: ir.Value) -> ir.Value:
    """Embeddings [B, S, layers * width] of all layers."""
    s = b.shape
    width = s.layers * s.layer_inputs
    table = b.weight("layers.weight", s.vocab, width)
    looked_up = b.op("Gather", [b.constant(table, "layers.weight"), ids], width, axis=0)
    scale = b.vector("layers.norm.weight", s.layer_inputs)
    made = b.linear(x, "layers.projection", s.hidden, width)
    normed = b.ours("HeadRMSNorm", [made, scale], width, num_heads=s.layers, epsilon=1e-5)
    result: ir.Value = b.op("Add", [normed, looked_up], width)
    return result


def _take_layer_input(b: DenseBuilder, x: ir.Value, own: ir.Value, index: int) -> ir.Value:
    """A layer's own embedding, gated by its hidden state, added to that."""
    s = b.shape
    bounds = (index * s.layer_inputs, (index + 1) * s.layer_inputs, -1)
    cut = [b.constant(ir.tensor([n], ir.DataType.INT64), b.name("bound")) for n in bounds]
    mine = b.op("Slice", [own, *cut], s.layer_inputs)
    gate = b.op(
        "Gelu", [b.linear(x, f"{index}.own_gate", s.hidden, s.layer_inputs)], s.layer_inputs
    )
    h = b.op("Mul", [gate, mine], s.layer_inputs)
    h = b.linear(h, f"{index}.own_out", s.layer_inputs, s.hidden)
    result: ir.Value = b.op("Add", [x, h], s.hidden)
    return result


def _rotary_table(b: DenseBuilder, positions: ir.Value) -> tuple[ir.Value, ir.Value]:
    half = b.shape.rotary_dim // 2
    inverse = (100.0 ** (-np.arange(half) / half)).astype(np.float32)
    cast = b.op("Cast", [positions], to=int(ir.DataType.FLOAT))
    cast.shape = ir.Shape(["B", "S"])
    last = b.constant(ir.tensor([2], ir.DataType.INT64), "axis_2")
    column = b.op("Unsqueeze", [cast, last], 1)
    row = b.constant(ir.tensor(inverse.reshape(1, 1, half)), "inv_freq")
    angle = b.op("Mul", [column, row], half)
    return b.op("Cos", [angle], half), b.op("Sin", [angle], half)


def _attention(
    b: DenseBuilder, x: ir.Value, index: int, window: int, rotary: tuple[ir.Value, ir.Value] | None
) -> ir.Value:
    s = b.shape
    q_width, kv_width = s.heads * s.head_dim, s.kv_heads * s.head_dim
    width = s.heads * s.value_dim
    sizes = [q_width, kv_width, kv_width]
    shares = b.shared is not None and index >= s.layers - s.shared_kv
    if s.latent:
        q, k, v = latent_heads(b, x, index)
    elif s.fused:
        qkv = b.linear(x, f"{index}.qkv", s.hidden, sum(sizes))
        split = b.constant(ir.tensor(sizes, ir.DataType.INT64), b.name("sizes"))
        q, k, v = b.op("Split", [qkv, split], outputs=3, axis=-1)
        for value, size in zip((q, k, v), sizes, strict=True):
            value.shape = ir.Shape(["B", "S", size])
    elif shares:
        q = b.linear(x, f"{index}.q", s.hidden, q_width, s.qkv_bias)
        k, v = b.shared
    else:
        q, k, v = (
            b.linear(x, f"{index}.{kind}", s.hidden, size, s.qkv_bias)
            for kind, size in zip("qkv", sizes, strict=True)
        )
    if s.qk_norm:
        q = _head_norm(b, q, f"{index}.q_norm", s.heads)
        k = k if shares else _head_norm(b, k, f"{index}.k_norm", s.kv_heads)
    if s.wide_qk_norm:
        q = b.norm(q, f"{index}.q_norm", q_width)
        k = b.norm(k, f"{index}.k_norm", kv_width)
    if rotary:
        q = _rotate(b, q, s.heads, rotary)
        k = k if shares else _rotate(b, k, s.kv_heads, rotary)
    b.shared = k, v
    sinks = slopes = None
    if s.sinks:
        sinks = b.vector(f"{index}.sinks", s.heads)
    if s.alibi:
        values = (2.0 ** -np.arange(1, s.heads + 1)).astype(np.float32)
        slopes = b.constant(ir.tensor(values), b.name("slopes"))
    out = b.ours(
        "Attention",
        [q, k, v, sinks, slopes],
        width,
        num_heads=s.heads,
        kv_num_heads=s.kv_heads,
        scale=s.head_dim**-0.5,
        softcap=s.softcap,
        window=window,
        chunk=s.chunks[index] if s.chunks else 0,
    )
    result: ir.Value = b.linear(out, f"{index}.o", width, s.hidden)
    return result


def _head_norm(b: DenseBuilder, x: ir.Value, name: str, heads: int) -> ir.Value:
    scale = b.vector(f"{name}.weight", b.shape.head_dim)
    width = heads * b.shape.head_dim
    value: ir.Value = b.ours("HeadRMSNorm", [x, scale], width, num_heads=heads, epsilon=1e-5)
    return value


def _rotate(
    b: DenseBuilder, x: ir.Value, heads: int, rotary: tuple[ir.Value, ir.Value]
) -> ir.Value:
    value: ir.Value = b.op(
        "RotaryEmbedding",
        [x, *rotary],
        heads * b.shape.head_dim,
        num_heads=heads,
        rotary_embedding_dim=b.shape.rotary_dim,
        interleaved=0,
    )
    return value


def _mlp(b: DenseBuilder, x: ir.Value, index: int) -> ir.Value:
    s = b.shape
    if not s.gated:
        up = b.linear(x, f"{index}.up", s.hidden, s.inner, s.mlp_bias)
        plain: ir.Value = b.linear(_active(b, up), f"{index}.down", s.inner, s.hidden, s.mlp_bias)
        return plain
    if s.fused:
        both = b.linear(x, f"{index}.gate_up", s.hidden, 2 * s.inner)
        sizes = b.constant(ir.tensor([s.inner, s.inner], ir.DataType.INT64), b.name("halves"))
        gate, up = b.op("Split", [both, sizes], s.inner, outputs=2, axis=-1)
    else:
        gate = b.linear(x, f"{index}.gate", s.hidden, s.inner, s.mlp_bias)
        up = b.linear(x, f"{index}.up", s.hidden, s.inner, s.mlp_bias)
    product = b.op("Mul", [_active(b, gate), up], s.inner)
    result: ir.Value = b.linear(product, f"{index}.down", s.inner, s.hidden, s.mlp_bias)
    return result


def _active(b: DenseBuilder, x: ir.Value) -> ir.Value:
    s = b.shape
    value: ir.Value
    if s.activation == "silu":
        value = b.op("Mul", [x, b.op("Sigmoid", [x], s.inner)], s.inner)
    else:
        how = "tanh" if s.activation == "gelu_tanh" else "none"
        value = b.op("Gelu", [x], s.inner, approximate=how)
    return value
