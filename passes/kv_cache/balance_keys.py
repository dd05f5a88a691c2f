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
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassCosts, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.calibrating.reads_text import ReadsText
from optc.passes.quantize.folding.scaled_pairs import scalable
from optc.passes.quantize.rotate.rotate_kv import RotateKV
from optc.proof.reference.observers import BlockValues, Watcher
from optc.proof.reference.partition import Block
from optc.system.hardware.target import usable_threads

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BalanceKeys(ReadsText):
    """Keys become easier to quantize, and the model's logits stay as they are.

    The float32 model runs over a text. Of each attention's keys, after the rotary embedding:

        1. each rotary pair of channels is divided by (E[k²] / E[q²]) ** 1/4, and that of the
           queries multiplied by it: in the scales of their norms or the rows of their
           projections, where nothing but a rotary embedding, a Split, or a join with channels that
           heads share lies between them and the attention;
        2. the mean of every channel is subtracted, where scores have neither a softcap nor sinks
           beside them: it adds the same to all scores of a query, which the softmax takes away.
           Keys that ``rotate-kv`` rotates afterwards keep it: int4 keys lost more without.

    Case 1 is SmoothQuant's balance (Xiao et al., arXiv:2211.10438) between keys and queries, case 2
    that of SageAttention (Zhang et al., arXiv:2410.02367), with a constant mean.
    """

    name: ClassVar[str] = "balance-keys"
    phase: ClassVar[Phase] = Phase.BASIS
    effects: ClassVar[Effect] = Effect.READS_TEXT | Effect.MOVES_KV | Effect.RESCALES_PROJECTIONS
    #: the projections are three layers yet, and float
    before: ClassVar[tuple[str, ...]] = ("fuse-qkv", "quantize-weights", "cast-weights")

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """One layer, and the hidden states."""
        from optc.passes.calibrating.working_bytes import observing

        return self.text_costs(observing(model, self.shape, hessians=False))

    def on_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            InputError: The text or the tokenizer cannot be used.
        """
        from optc.proof.reference.blockwise import observe  # brings ONNX Runtime

        report, tokens = PassReport(), self.tokens(model)
        nodes = [node for node in model.graph if is_op(node, "Attention", domain=DOMAIN)]
        moments = _Moments([value for node in nodes for value in node.inputs[:2] if value])
        observe(model, tokens, [moments], usable_threads())
        turned = _turned(context.later)
        shares = [_balance(model.graph, node, moments, report, turned=turned) for node in nodes]
        report.facts = {"tokens": int(tokens.size), "mean_share": [round(s, 3) for s in shares]}
        return report

    def without_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Subtract nothing, where a mean would be subtracted."""
        report = PassReport()
        for node in [node for node in model.graph if is_op(node, "Attention", domain=DOMAIN)]:
            keys = node.inputs[1]
            if keys is not None and not _mean_matters(node) and not _turned(context.later):
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


def _turned(later: Sequence[Pass]) -> bool:
    """True if a pass rotates the keys afterwards."""
    return any(isinstance(one, RotateKV) and one.block for one in later)


def _balance(
    graph: ir.Graph, node: ir.Node, moments: _Moments, report: PassReport, *, turned: bool
) -> float:
    """Balance one attention; returns the share of the mean in the keys' squares."""
    q, k = node.inputs[:2]
    if q is None or k is None:
        raise ValueError(f"{node.name}: an attention of nothing")
    heads, kv_heads = (node.attributes[n].as_int() for n in ("num_heads", "kv_num_heads"))
    (mean, k_square), (_, q_square) = moments.of(k), moments.of(q)
    squares = float(k_square.sum())  # zero where all keys are
    share = float(np.square(mean).sum()) / squares if squares else 0.0
    matters = _mean_matters(node)
    stays = turned or bool(matters)
    operands = scalable(node)
    if isinstance(operands, str):
        report.skip(node, operands)
    else:
        centred = k_square if stays else np.maximum(k_square - np.square(mean), 0)
        by_head = q_square.reshape(kv_heads, heads // kv_heads, -1).mean(1)
        mean = mean / operands.make_even(by_head, centred.reshape(kv_heads, -1)).ravel()
        report.add("pairs scaled")
    if matters:
        report.skip(node, f"{matters}: the keys' mean changes them")
    elif not turned:
        _subtract(graph, node, mean.astype(np.float32))
        report.add("centred")
    return share


def _mean_matters(node: ir.Node) -> str:
    """Why weights change with what all scores of a row have in common; empty if they do not."""
    if operand(node, "sinks") is not None:
        return "its scores have sinks beside them"
    return "its scores have a softcap" if node.attributes.get_float("softcap", 0.0) else ""


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
