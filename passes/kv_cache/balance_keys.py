"""`balance-keys`: keys without their mean, and with rotary pairs of even size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op, operand
from optc.ir.graph import add_initializer, width
from optc.ir.linear import Linear, linear_of
from optc.ir.weights import Array, LazyWeight
from optc.passes.quantize.reads_text import ReadsText
from optc.pipeline.base import Pass, PassReport
from optc.pipeline.work import Work
from optc.reference.observers import BlockValues, Watcher
from optc.reference.partition import Block
from optc.target import usable_threads

Float64 = npt.NDArray[np.float64]
#: No pair is scaled by more, nor by less than its inverse.
_MOST = 16.0


@dataclass(frozen=True)
class BalanceKeys(ReadsText):
    """Keys become easier to quantize, and the model's logits stay as they are.

    The float32 model runs over a text. Of each attention's keys, after the rotary embedding:

        1. each rotary pair of channels is divided by (E[k²] / E[q²]) ** 1/4, centred, and that of
           the queries multiplied by it: in the rows of both projections, where nothing but a
           rotary embedding lies between them and the attention;
        2. the mean of every channel is subtracted, where scores have neither a softcap nor sinks
           beside them: it adds the same to all scores of a query, which the softmax takes away.

    Case 1 is SmoothQuant's balance (Xiao et al., arXiv:2211.10438) between keys and queries, case 2
    that of SageAttention (Zhang et al., arXiv:2410.02367), with a constant mean.
    """

    name: ClassVar[str] = "balance-keys"
    moves_kv: ClassVar[bool] = True
    #: the projections are three layers yet, and float
    before: ClassVar[tuple[str, ...]] = ("fuse-qkv", "quantize-weights", "cast-weights")

    def working_bytes(self, model: ir.Model) -> int:
        """One layer, and the hidden states."""
        from optc.passes.quantize.working_bytes import observing

        return observing(model, self.shape, hessians=False)

    def work(self, model: ir.Model, later: Sequence[Pass] = ()) -> Work:
        """The model once over the text."""
        from optc.passes.quantize.predictions.work import observing

        return observing(model, self.shape, hessians=False)

    def run(self, model: ir.Model) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            InputError: The text or the tokenizer cannot be used.
        """
        from optc.reference.blockwise import observe  # brings ONNX Runtime

        report, tokens = PassReport(), self.tokens(model)
        nodes = [node for node in model.graph if is_op(node, "Attention", domain=DOMAIN)]
        moments = _Moments([value for node in nodes for value in node.inputs[:2] if value])
        observe(model, tokens, [moments], usable_threads())
        shares = [_balance(model.graph, node, moments, report) for node in nodes]
        report.facts = {"tokens": int(tokens.size), "mean_share": [round(s, 3) for s in shares]}
        return report

    def run_unread(self, model: ir.Model, later: Sequence[Pass]) -> PassReport:
        """Subtract nothing, where a mean would be subtracted."""
        report = PassReport()
        for node in [node for node in model.graph if is_op(node, "Attention", domain=DOMAIN)]:
            keys = node.inputs[1]
            if keys is not None and not _mean_matters(node):
                _subtract(model.graph, node, np.zeros(width(keys) or 0, np.float32))
            report.add("not balanced")
        return report


class _Moments(Watcher):
    """Means and mean squares of some values by channel, float64 [n]."""

    def __init__(self, values: Sequence[ir.Value]) -> None:
        self._sums: dict[ir.Value, tuple[Float64, Float64, int]] = {}
        self._values = set(values)

    def watched(self, block: Block) -> Sequence[ir.Value]:
        """Those of the values that the block makes."""
        return [v for node in block.nodes for v in node.outputs if v in self._values]

    def on_values(self, seen: BlockValues) -> None:
        """Add a chunk's rows."""
        for value, array in seen.values.items():
            rows = array.reshape(-1, array.shape[-1]).astype(np.float64)
            first, second, count = self._sums.get(value, (0.0, 0.0, 0))
            total = first + rows.sum(0), second + np.square(rows).sum(0)
            self._sums[value] = (*total, count + len(rows))

    def of(self, value: ir.Value) -> tuple[Float64, Float64]:
        """Mean and mean square."""
        first, second, count = self._sums[value]
        return first / count, second / count


def _balance(graph: ir.Graph, node: ir.Node, moments: _Moments, report: PassReport) -> float:
    """Balance one attention; returns the share of the mean in the keys' squares."""
    q, k = node.inputs[:2]
    if q is None or k is None:
        raise ValueError(f"{node.name}: an attention of nothing")
    heads, kv_heads = (node.attributes[n].as_int() for n in ("num_heads", "kv_num_heads"))
    (mean, k_square), (_, q_square) = moments.of(k), moments.of(q)
    squares = float(k_square.sum())  # zero where all keys are
    share = float(np.square(mean).sum()) / squares if squares else 0.0
    keeps_mean = _mean_matters(node)
    layers = _projections(q, k)
    if isinstance(layers, str):
        report.skip(node, layers)
    else:
        centred = k_square if keeps_mean else np.maximum(k_square - np.square(mean), 0)
        by_head = q_square.reshape(kv_heads, heads // kv_heads, -1).mean(1)
        scales = _scales(centred.reshape(kv_heads, -1), by_head, k.producer())
        _scale_rows(layers[0], np.repeat(scales, heads // kv_heads, axis=0).ravel())
        _scale_rows(layers[1], 1 / scales.ravel())
        mean = mean / scales.ravel()
        report.add("pairs scaled")
    if keeps_mean:
        report.skip(node, f"{keeps_mean}: the keys' mean changes them")
    else:
        _subtract(graph, node, mean.astype(np.float32))
        report.add("centred")
    return share


def _mean_matters(node: ir.Node) -> str:
    """Why weights change with what all scores of a row have in common; empty if they do not."""
    if operand(node, "sinks") is not None:
        return "its scores have sinks beside them"
    return "its scores have a softcap" if node.attributes.get_float("softcap", 0.0) else ""


def _projections(q: ir.Value, k: ir.Value) -> tuple[Linear, Linear] | str:
    """The linear layers of queries and keys, or why their rows cannot be scaled."""
    found = []
    for value in (q, k):
        node = value.producer()
        below = node.inputs[0] if node is not None and is_op(node, "RotaryEmbedding") else value
        linear = linear_of(below)
        if linear is None:
            return "more than a rotary embedding lies between a projection and its scores"
        if len(linear.initializer.uses()) != 1 or len(linear.output.uses()) != 1:
            return "a projection of queries or keys has other readers"
        found.append(linear)
    return found[0], found[1]


def _scales(k_square: Float64, q_square: Float64, rotary: ir.Node | None) -> Float64:
    """What keys [Hkv, Dk] are divided by: the same in both channels of a rotary pair."""
    keys, queries = k_square.copy(), q_square.copy()
    if rotary is not None and is_op(rotary, "RotaryEmbedding"):
        size = rotary.attributes.get_int("rotary_embedding_dim", 0) or keys.shape[1]
        apart = bool(rotary.attributes.get_int("interleaved", 0))
        first = slice(0, size, 2) if apart else slice(0, size // 2)
        second = slice(1, size, 2) if apart else slice(size // 2, size)
        for squares in (keys, queries):
            squares[:, first] = squares[:, second] = squares[:, first] + squares[:, second]
    least = 1e-12
    raw = (np.maximum(keys, least) / np.maximum(queries, least)) ** 0.25
    even: Float64 = raw / np.exp(np.log(raw).mean(1, keepdims=True))
    return np.clip(even, 1 / _MOST, _MOST)


def _scale_rows(linear: Linear, factors: Float64) -> None:
    """Multiply the rows of a linear layer, weight and bias."""
    weight, exact = linear.weight, factors.astype(np.float32)

    def read(start: int, stop: int) -> Array:
        rows = np.asarray(weight.read_rows(start, stop), np.float32)
        return rows * exact[start:stop, None]

    linear.initializer.const_value = LazyWeight(
        read, weight.rows_shape, ir.DataType.FLOAT, weight.name or "", transposed=weight.transposed
    )
    linear.initializer.dtype = ir.DataType.FLOAT
    if linear.bias is not None and linear.bias.const_value is not None:
        bias = linear.bias.const_value.numpy().astype(np.float32) * exact
        linear.bias.const_value = ir.tensor(bias, name=linear.bias.name)


def _subtract(graph: ir.Graph, node: ir.Node, mean: npt.NDArray[np.float32]) -> None:
    """Take ``mean`` [Hkv * Dk] from the attention's keys."""
    k = node.inputs[1]
    if k is None:
        raise ValueError(f"{node.name}: an attention of nothing")
    name = f"{node.name or k.name}.key_mean"
    constant = add_initializer(graph, ir.tensor(mean, name=name), name)
    centred = ir.Node("", "Sub", [k, constant], name=f"{name}.sub")
    result = centred.outputs[0]
    result.name, result.type, result.shape = f"{name}.centred", k.type, k.shape
    graph.insert_before(node, [centred])
    node.replace_input_with(1, result)
    if width(result) != mean.size:
        raise ValueError(f"{name}: {mean.size} channels of {width(result)}")
