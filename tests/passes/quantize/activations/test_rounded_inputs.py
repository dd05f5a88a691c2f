"""What rounded inputs lose: against whole models that round them by standard operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.linear import Linear
from optc.passes.quantize.activations.rounded_inputs import losses
from optc.passes.quantize.budget.groups import groups_of
from optc.proof.reference.blockwise import BlockwiseReference
from tests.support.dense_models import V

TOKENS = np.random.default_rng(0).integers(0, V, (3, 40), np.int32)


def log_probabilities(model: ir.Model) -> np.ndarray:
    reference = BlockwiseReference(model, 1)
    hidden = reference.run(TOKENS)
    (tile,) = reference.tiles()
    z = reference.logits(hidden, tile).astype(np.float64)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def round_input(model: ir.Model, linears: Sequence[Linear]) -> None:
    """Each row to 127 steps either way of its largest magnitude."""
    x = linears[0].x
    constants = [
        model.graph.register_initializer(value) or value
        for value in (
            ir.Value(name=f"{x.name}.{name}", const_value=ir.tensor(array, name=f"{x.name}.{name}"))
            for name, array in (("axis", np.array([-1])), ("steps", np.array(127, np.float32)))
        )
    ]
    nodes: list[ir.Node] = []

    def op(name: str, *inputs: ir.Value) -> ir.Value:
        nodes.append(ir.node(name, inputs))
        return nodes[-1].outputs[0]

    step = op("Div", op("ReduceMax", op("Abs", x), constants[0]), constants[1])
    rounded = op("Mul", op("Round", op("Div", x, step)), step)
    model.graph.insert_before(linears[0].matmul, nodes)
    for linear in linears:
        linear.matmul.replace_input_with(0, rounded)


@pytest.mark.parametrize("chosen", [[0], [3], [8], [1, 2, 8]])
def test_the_loss_is_that_of_the_model_with_these_inputs_rounded(
    model: ir.Model, chosen: list[int]
) -> None:
    whole = groups_of(model, head=True)
    assert len(whole) == 9
    before = log_probabilities(model)
    found = losses(model, TOKENS, [[], chosen], head=True)
    for index in chosen:
        round_input(model, groups_of(model, head=True)[index].linears)
    after = log_probabilities(model)
    kl = float((np.exp(before) * (before - after)).sum(axis=1).mean())
    assert kl > 1e-6
    assert found[0] == pytest.approx(0, abs=1e-9)
    assert found[1] == pytest.approx(kl, rel=0.02)


def test_the_model_stays_as_it_is(model: ir.Model) -> None:
    before = [(node.op_type, [v.name for v in node.inputs if v]) for node in model.graph]
    losses(model, TOKENS, [[2]], head=False)
    after = [(node.op_type, [v.name for v in node.inputs if v]) for node in model.graph]
    assert after == before
