"""Recurrences of transformers' modules are known by their parameters, and what is traced in their
place computes the same."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from optc.errors import UnsupportedError
from optc.importer.capturing import recurrences
from tests.support import oracle

#: Of each kind some; the functions' names differ.
DELTA = ("qwen3_next", "qwen3_5", "olmo_hybrid", "lara_mini")
SPACES = ("mamba2", "granitemoehybrid", "nemotron_h", "bamba")
BY_KEY = ("kimi_linear", "bailing_hybrid")
SCANS = ("mamba", "falcon_mamba", "jamba")


def traced_and_own(kind: str) -> tuple[Any, Any]:
    """What stands for the recurrence of a type in an export, and the function itself."""
    module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    found = {
        name: (traced, function)
        for name, function in vars(module).items()
        if (traced := recurrences._replacement(module, function)) is not None
    }
    (pair,) = found.values()
    return pair


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@pytest.fixture(autouse=True)
def computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator that is otherwise only traced, in float64."""

    def operator(q: Any, k: Any, v: Any, decay: Any, beta: Any, scale: float, delta: int) -> Any:
        rows = zip(q, k, v, decay, beta, strict=True)
        found = [oracle.linear_attention(*map(np.asarray, r), scale, delta)[0] for r in rows]
        return torch.from_numpy(np.array(found)).float()

    def scan(q: Any, k: Any, v: Any, decay: Any, rates: Any) -> Any:
        rows = [[np.asarray(x)[:, None] for x in row] for row in zip(q, k, v, decay, strict=True)]
        rates = np.asarray(rates)
        found = [oracle.linear_attention(*r, None, 1.0, 0, rates=rates)[0][:, 0] for r in rows]
        return torch.from_numpy(np.array(found)).float()

    monkeypatch.setattr(recurrences, "linear_attention", operator)
    monkeypatch.setattr(recurrences, "selective_scan", scan)


@pytest.mark.parametrize("kind", DELTA)
@pytest.mark.parametrize("unit", [True, False])
def test_delta_rules(kind: str, unit: bool) -> None:
    traced, own = traced_and_own(kind)
    shape = (2, 70)  # more than a chunk
    k = drawn(*shape, 2, 16, seed=1)
    operands = {
        "query": drawn(*shape, 2, 16),
        "key": k if unit else k / k.norm(dim=-1, keepdim=True),
        "value": drawn(*shape, 4, 8, seed=2),
        "g": -drawn(*shape, 4, seed=3).abs(),
        "beta": torch.sigmoid(drawn(*shape, 4, seed=4)),
        "use_qk_l2norm_in_kernel": unit,
    }
    found, want = traced(**operands)[0], own(**operands)[0]
    torch.testing.assert_close(found, want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kind", BY_KEY)
def test_delta_rules_with_a_decay_of_each_key(kind: str) -> None:
    traced, own = traced_and_own(kind)
    shape = (2, 70)
    k = drawn(*shape, 4, 16, seed=1)
    operands = {
        "query": drawn(*shape, 4, 16),
        "key": k,
        "value": drawn(*shape, 4, 16, seed=2),
        "g": -drawn(*shape, 4, 16, seed=3).abs(),
        "beta": torch.sigmoid(drawn(*shape, 4, seed=4)),
        "use_qk_l2norm_in_kernel": True,
    }
    found, want = traced(**operands)[0], own(**operands)[0]
    torch.testing.assert_close(found, want, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kind", SCANS)
@pytest.mark.parametrize("plain", [True, False])
def test_selective_scans(kind: str, plain: bool) -> None:
    traced, own = traced_and_own(kind)
    dt = drawn(2, 24, 9, seed=1)
    operands: dict[str, Any] = {
        "hidden_states": drawn(2, 24, 9),
        "dt": dt.abs() if plain else dt,
        "A": -drawn(24, 16, seed=2).abs(),
        "B": drawn(2, 16, 9, seed=3),
        "C": drawn(2, 16, 9, seed=4),
    }
    if not plain:
        operands |= {"D": drawn(24, seed=5), "z": drawn(2, 24, 9, seed=6)}
        operands |= {"delta_bias": drawn(24, seed=7), "delta_softplus": True}
    found, want = traced(**operands), own(**operands)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)
    last = traced(**operands, return_last_state=True, use_mambapy=False)
    torch.testing.assert_close(last[0], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("plain", [True, False])
def test_state_spaces(kind: str, plain: bool) -> None:
    traced, own = traced_and_own(kind)
    shape = (2, 40)
    operands: dict[str, Any] = {
        "hidden_states": drawn(*shape, 4, 8),
        "dt": drawn(*shape, 4, seed=1).abs() if plain else drawn(*shape, 4, seed=1),
        "A": -drawn(4, seed=2).abs(),
        "B": drawn(*shape, 2, 16, seed=3),
        "C": drawn(*shape, 2, 16, seed=4),
        "chunk_size": 16,
    }
    if not plain:
        operands |= {"D": drawn(4, seed=5), "dt_bias": drawn(4, seed=6), "dt_softplus": True}
        operands |= {"dt_limit": (0.1, 1.5)}
    found, want = traced(**operands), own(**operands)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)


def test_what_is_not_the_same_is_refused() -> None:
    traced, _ = traced_and_own("qwen3_5")
    operands = [*[drawn(1, 2, 1, 4)] * 3, drawn(1, 2, 1), drawn(1, 2, 1)]
    for more, reason in (
        ({"initial_state": 1}, "begins with a state of its own"),
        ({"scale": 7.0}, "with scale is not supported"),
        ({"cu_seqlens": operands[3]}, "with cu_seqlens is not supported"),
    ):
        with pytest.raises(UnsupportedError, match=reason):
            traced(*operands, **more)
    # what a caller forwards of the model's own arguments says nothing here
    forwarded = {"output_router_logits": True, "position_ids": operands[3]}
    traced(*operands, chunk_size=32, output_final_state=True, cu_seqlens=None, **forwarded)


def test_arguments_are_those_of_the_functions_names() -> None:
    """Of code of others the order may be another, and there may be more."""

    def rule(
        query: Any, key: Any, value: Any, beta: Any, g: Any, chunk_size: int = 64, gate: Any = None
    ) -> None:
        """Of the parameters that tell, in another order."""

    module = SimpleNamespace(__name__=rule.__module__)
    traced = recurrences._replacement(module, rule)
    assert traced is not None
    q, k, v = (drawn(1, 5, 2, 4, seed=n) for n in range(3))
    g, beta = -drawn(1, 5, 2, seed=3).abs(), drawn(1, 5, 2, seed=4)
    found = traced(q, k, v, beta, g)[0]
    own, _ = traced_and_own("qwen3_5")
    torch.testing.assert_close(found, own(q, k, v, g, beta)[0])
    with pytest.raises(UnsupportedError, match="with gate is not supported"):
        traced(q, k, v, beta, g, gate=v)


def test_modules_get_their_functions_back() -> None:
    from transformers.models.qwen3_5 import modeling_qwen3_5 as module

    own = module.torch_chunk_gated_delta_rule
    decoder = torch.nn.ModuleList([module.Qwen3_5RMSNormGated(4)])
    with recurrences.captured(decoder):
        assert module.torch_chunk_gated_delta_rule is not own
    assert module.torch_chunk_gated_delta_rule is own


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        *((kind, True) for kind in (*DELTA, *BY_KEY, *SPACES, *SCANS)),
        *(("llama", False), ("minimax", False)),
    ],
)
def test_types_with_known_recurrences(kind: str, known: bool) -> None:
    assert recurrences.has_known(AutoConfig.for_model(kind)) == known
