"""Loops over the experts that are hit: one turn, on stand-ins, says what all of them do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from transformers import DbrxConfig
from transformers.models.dbrx.modeling_dbrx import DbrxFFN

from optc.errors import UnsupportedError
from optc.importer.capturing.expert_loops import unroll_loops
from tests.importer.capturing.test_experts import Flat, in_dense_form, routers, seeded
from tests.passes.canonicalize.texts import evaluate

E, K, D, N = 5, 2, 24, 16


class Loop(torch.nn.Module):
    """Experts with gates, in a loop whose lines are ``source``."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.gate_up = torch.nn.Parameter(torch.empty(E, 2 * N, D))
        self.down = torch.nn.Parameter(torch.empty(E * N, D))
        scope: dict[str, Any] = {"torch": torch, "F": F}
        exec(f"def body(self, x, index, weights):\n{source}\n", scope)
        self._body: Callable[..., torch.Tensor] = scope["body"]

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        return self._body(self, hidden_states, top_k_index, top_k_weights)


class Mixture(torch.nn.Module):
    """A router by softmax, and such a loop."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.router = torch.nn.Linear(D, E, bias=False)
        self.experts = Loop(source)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, D)
        weights, index = torch.topk(self.router(flat).softmax(-1), K)
        return self.experts(flat, index, weights).view(x.shape)


LOOP = """
    total = torch.zeros_like(x)
    mask = F.one_hot(index, num_classes=5).permute(2, 1, 0)
    hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
    for turn in hit:
        e = turn[0]
        slot, token = torch.where(mask[e])
        gate, up = F.linear(x[token], self.gate_up[e]).chunk(2, dim=-1)
        rows = F.silu(gate) * up
        rows = rows.matmul(self.down.view(5, 16, 24)[e])
        rows = rows * weights[token, slot, None]
        total.index_add_(0, token, rows.to(total.dtype))
    return total"""
SPELLINGS = {
    "as classes have it": [],
    "axes in another order": [
        ("permute(2, 1, 0)", "permute(2, 0, 1)"),
        ("slot, token", "token, slot"),
    ],
    "a sentinel": [("num_classes=5", "num_classes=6")],
    "a product by the transposed weight": [
        ("F.linear(x[token], self.gate_up[e])", "x[token].matmul(self.gate_up[e].T)")
    ],
    "types": [("x[token],", "x[token].to(torch.float64).to(torch.float32),")],
    "another activation": [("F.silu(gate)", "F.gelu(gate, approximate='none')")],
    "numbers": [("F.silu(gate) * up", "torch.sigmoid(1.7 * gate) * (up + 1)")],
    "weights before": [("F.silu(gate) * up", "F.silu(gate) * up + 0")],
}


def spelled(changes: list[tuple[str, str]]) -> str:
    source = LOOP
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return source


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_loop_is_matmuls_by_experts(spelling: str) -> None:
    module = seeded(Mixture(spelled(SPELLINGS[spelling])))
    x = torch.randn(2, 7, D, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = module(x).numpy()
    unroll_loops(module)
    model = in_dense_form(module, D)
    kinds = [node.op_type for node in model.graph]
    assert (kinds.count("ExpertMatMul"), kinds.count("CombineExperts")) == (2, 1)
    got = evaluate(model, {"x": x.numpy()})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


REFUSED = {
    "slots for tokens": [("slot, token", "token, slot")],
    "tokens for slots in weights": [("weights[token, slot, None]", "weights[slot, token, None]")],
    "numbers for places": [("weights[token, slot, None]", "weights[2, 1, None]")],
    "no weights": [("rows = rows * weights[token, slot, None]", "pass")],
    "weights twice": [
        ("rows * weights[token, slot, None]", "rows * weights[token, slot, None]"),
        ("rows.to(", "(rows * weights[token, slot, None]).to("),
    ],
    "weights before the last product": [("F.silu(gate) * up", "up * weights[token, slot, None]")],
    "an expert apart": [("e = turn[0]", "e = turn[0]\n        if e == 2: continue")],
    "experts above one": [("e = turn[0]", "e = turn[0]\n        if e > 2: continue")],
    "a branch on rows": [
        ("e = turn[0]", "e = turn[0]\n        if x[torch.where(mask[e])[1]]: pass")
    ],
    "hit twice": [(", 0).nonzero()", ", 1).nonzero()")],
    "all places": [(", 0).nonzero()", ", 0).nonzero(as_tuple=True)")],
    "counts of slots": [("dim=(-1, -2)", "dim=(0, 1)")],
    "another row": [("x[token]", "x[slot]")],
    "a norm of rows": [("F.silu(gate)", "F.softmax(gate, -1)")],
    "rows of others": [("F.silu(gate) * up", "F.silu(gate) * self.down")],
    "another weight": [("self.gate_up[e]", "self.gate_up[0]")],
    "a bias": [("self.gate_up[e])", "self.gate_up[e], self.down[0])")],
    "a sum of rows alone": [("total.index_add_(0,", "total.index_add_(1,")],
    "rows put elsewhere": [("rows.to(total.dtype))", "rows.view(24, -1))")],
    "rows cut apart": [("chunk(2, dim=-1)", "chunk(2, dim=0)")],
    "written over": [("total.index_add_(0, token, rows.to(total.dtype))", "total[token] = rows")],
}


@pytest.mark.parametrize("what", REFUSED)
def test_any_other_body_is_refused(what: str) -> None:
    module = seeded(Mixture(spelled(REFUSED[what])))
    unroll_loops(module)
    with torch.no_grad(), pytest.raises(UnsupportedError, match="loop over experts") as refusal:
        module(torch.randn(2, 7, D))
    assert refusal.value.where == "Loop"


def test_a_class_of_transformers() -> None:
    own = {"hidden_size": D, "ffn_hidden_size": N, "moe_num_experts": 4, "moe_top_k": K}
    config = DbrxConfig(d_model=D, n_heads=4, ffn_config=own)
    module = seeded(DbrxFFN(config))
    x = torch.randn(2, 7, D, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = module(x).numpy()
    unroll_loops(module)
    model = in_dense_form(Flat(module), D)
    assert [router["normalize"] for router in routers(model)] == [1]
    got = evaluate(model, {"x": x.numpy()})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_other_modules_are_left() -> None:
    module = torch.nn.Linear(3, 3)
    unroll_loops(module)
    assert re.match("<bound method Linear.forward", repr(module.forward))
