"""Every operator of the dense form in PyTorch gives what ONNX Runtime gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch

from optc.ir.functions import DOMAIN
from optc.ir.functions import OPERATORS as FUNCTIONS
from optc.passes.canonicalize import dense_form
from optc.proof.reference.execution.operators import OPERATORS
from tests.proof.reference.execution.one_node import both, lazy, one_node
from tests.support.hadamard import rotation

RNG = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Any:
    return np.abs(normal(*shape)) + np.float32(0.1)


def units(*shape: int) -> Any:
    """Keys of two heads, which the delta rule wants of length 1."""
    keys = normal(*shape).reshape(*shape[:-1], 2, -1)
    return (keys / np.linalg.norm(keys, axis=-1, keepdims=True)).reshape(shape)


def rates(*shape: int) -> list[Any]:
    """Decays, logarithms of what is below 1, and betas from 0 to 1."""
    return [-positive(*shape), 1 / (1 + np.exp(-normal(*shape)))]


def fixed(*numbers: int) -> ir.Tensor:
    return ir.Tensor(np.array(numbers, np.int64))


def vector(*shape: int) -> ir.Tensor:
    return ir.Tensor(normal(*shape))


@dataclass(frozen=True)
class Case:
    name: str
    operands: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""

    @property
    def kind(self) -> ir.DataType:
        """The type of its standard results."""
        if self.name.startswith(("Greater", "Less", "Not")):
            return ir.DataType.BOOL
        if self.name == "Cast":
            return ir.DataType(self.attributes["to"])
        integers = getattr(self.operands[0], "dtype", None) == np.int64
        return ir.DataType.INT64 if integers else ir.DataType.FLOAT


def ours(name: str, operands: list[Any], **attributes: Any) -> Case:
    return Case(name, operands, attributes, domain=DOMAIN)


def attention(heads: int = 4, kv: int = 2, size: int = 9, more: Any = (), **given: Any) -> Case:
    widths = heads * 8, kv * 8, kv * 6
    operands = [normal(2, size, width) for width in widths]
    options = {"num_heads": heads, "kv_num_heads": kv, "scale": 0.3, "softcap": 0.0, "window": 0}
    return ours("Attention", [*operands, *more], **{**options, **given})


ROUTER = {
    "top_k": 3,
    "scoring": "softmax",
    "normalize": 0,
    "norm_epsilon": 0.0,
    "scale": 1.0,
    "groups": 1,
    "top_groups": 1,
    "group_score": "max",
}
MIXER = {**ROUTER, "scoring": "sparse_mixer", "threshold": 0.4}
EXPERTS = RNG.integers(0, 5, (2, 4, 3)).astype(np.int32)
EXPERTS[EXPERTS == 3] = 4  # one of them is nobody's
X = normal(2, 5, 12)
TIED = np.round(normal(2, 7, 8))  # equal scores
BINARY = ("Add", "Sub", "Mul", "Div", "Min", "Max", "Greater", "GreaterOrEqual", "Less")
UNARY = ("Neg", "Abs", "Reciprocal", "Tanh", "Sigmoid", "Relu", "Erf", "Exp", "Cos", "Sin", "Floor")
CASES = [
    *(Case(name, [X, normal(12)]) for name in (*BINARY, "LessOrEqual")),
    *(Case(name, [X, normal(2, 5, 1)]) for name in ("Add", "LessOrEqual", "GreaterOrEqual")),
    *(Case(name, [X]) for name in (*UNARY, "Softplus", "Identity")),
    *(Case(name, [positive(2, 3)]) for name in ("Sqrt", "Log")),
    *(Case(name, [X, normal(12), normal(2, 5, 1)]) for name in ("Min", "Max")),
    Case("Div", [RNG.integers(-9, 9, (3, 4)), np.array([2, -3, 4, 5])]),
    Case("Pow", [positive(2, 3), ir.Tensor(np.float32(1.7))]),
    Case("Not", [X > 0]),
    Case("Where", [X > 0, X, normal(12)]),
    Case("Clip", [X, ir.Tensor(np.float32(-0.5)), ir.Tensor(np.float32(0.7))]),
    Case("Clip", [X, None, ir.Tensor(np.float32(0.7))]),
    Case("Cast", [10 * X], {"to": 7}),
    Case("Cast", [np.arange(7)], {"to": 1}),
    Case("RMSNormalization", [X, vector(12)], {"axis": -1, "epsilon": 1e-3}),
    Case("RMSNormalization", [X, vector(12)], {"axis": -1}),
    Case("LayerNormalization", [X, vector(12), vector(12)], {"axis": -1, "epsilon": 1e-3}),
    Case("LayerNormalization", [X, vector(12)], {"axis": -1}),
    Case("Gelu", [X]),
    Case("Gelu", [X], {"approximate": "tanh"}),
    *(
        Case(
            "RotaryEmbedding",
            [X, normal(2, 5, width // 2), normal(2, 5, width // 2)],
            {"num_heads": 2, "rotary_embedding_dim": width, "interleaved": interleaved},
        )
        for width in (4, 6)
        for interleaved in (0, 1)
    ),
    Case("Split", [X, fixed(5, 7)], {"axis": -1}, 2),
    Case("Split", [X], {"axis": 1, "num_outputs": 2}, 2),
    Case("Slice", [X, fixed(1), fixed(99), fixed(-1), fixed(2)]),
    Case("Slice", [X, fixed(1), fixed(2)]),
    Case("Slice", [X, fixed(-5), fixed(-1), fixed(2)]),
    Case("Concat", [X, normal(2, 5, 3), X], {"axis": -1}),
    Case("Unsqueeze", [X, fixed(0, -1)]),
    Case("Squeeze", [X[None], fixed(0)]),
    Case("Gather", [vector(6, 3), np.array([[5, 0], [2, 2]])]),
    Case("Gather", [vector(6), np.array([[5, 0], [2, 2]])]),
    Case("MatMul", [X, lazy(normal(7, 12))]),
    Case("MatMul", [X, vector(12, 7)]),
    Case("MatMul", [X, normal(12, 7)]),
    Case("Mul", [X, lazy(normal(12, 1))]),  # what the graph sees turned, of no linear layer
    ours("HeadRMSNorm", [X, vector(6)], num_heads=2, epsilon=1e-5),
    ours("HeadConcat", [normal(2, 5, 3), X], num_heads=4, shared=1),
    ours("HeadConcat", [normal(2, 5, 8), X], num_heads=4, shared=0),
    Case("SplitHeads", [X], {"num_heads": 4}, 2, domain=DOMAIN),
    ours("MergeHeads", [normal(2, 5, 4, 3)]),
    ours("CausalConv", [X, vector(12, 3)], channels=12, kernel=3),
    ours("CausalConv", [X, vector(12, 2), vector(12)], channels=12, kernel=2),
    *(
        ours(
            "LinearAttention",
            [normal(2, 130, 32), units(2, 130, 32), normal(2, 130, 24), *rates(2, 130, 4)],
            num_heads=4,
            key_heads=2,
            key_dim=16,
            value_dim=6,
            delta=delta,
            scale=0.25,
        )
        for delta in (0, 1)
    ),
    *(
        ours(
            "LinearAttention",
            [normal(2, 40, 32), units(2, 40, 32), normal(2, 40, 24), decay, *betas],
            num_heads=4,
            key_heads=2,
            key_dim=16,
            value_dim=6,
            delta=delta,
            scale=0.25,
            decays=16,
        )
        for decay in rates(2, 40, 64)[:1]
        for delta, betas in ((1, rates(2, 40, 4)[1:]), (0, []))
    ),
    ours(
        "LinearAttention",
        [
            *(normal(2, 70, width) for width in (16, 16, 24)),
            *(positive(2, 70, 24), None, ir.Tensor(-positive(16, 24))),
        ],
        num_heads=1,
        key_heads=1,
        key_dim=16,
        value_dim=24,
        delta=0,
        scale=1.0,
    ),
    *(
        ours("BlockHadamard", [normal(2, 3, width)], block=16, width=width, inverse=inverse)
        for width in (16, 32, 40)
        for inverse in (0, 1)
    ),
    attention(),
    attention(4, 4, 1),
    attention(4, 1, window=4),
    attention(chunk=4),
    attention(softcap=2.0, window=5),
    attention(more=[vector(4)], window=3),
    attention(more=[None, vector(4)]),
    attention(more=[vector(4), vector(4)], chunk=4, softcap=1.5),
    *(
        ours(
            "CrossAttention",
            [normal(2, 3, 4 * 8), normal(2, 9, heads * 8), normal(2, 9, heads * 6)],
            num_heads=4,
            kv_num_heads=heads,
            scale=0.3,
        )
        for heads in (4, 2)
    ),
    *(ours("GatedActivation", [X], activation=one) for one in ("silu", "gelu", "gelu_tanh")),
    ours("GatedActivation", [X], activation="silu", alpha=1.702, limit=0.4, up_shift=1.0),
    ours("TopKRouter", [normal(2, 7, 8)], **ROUTER),
    ours("TopKRouter", [TIED], **{**ROUTER, "scoring": "softmax_after"}),
    ours("TopKRouter", [normal(2, 7, 8)], **MIXER),
    ours("TopKRouter", [TIED, vector(8)], **{**ROUTER, "scoring": "sigmoid_after"}),
    ours("TopKRouter", [TIED], **MIXER),
    ours("TopKRouter", [TIED, vector(8)], **{**ROUTER, "scoring": "sigmoid", "normalize": 1}),
    *(
        ours(
            "TopKRouter",
            [TIED],
            **{**ROUTER, "groups": 4, "top_groups": 2, "group_score": score, "scale": 2.5},
        )
        for score in ("max", "top2_sum")
    ),
    ours(
        "ExpertMatMul",
        [normal(2, 4, 6), EXPERTS, lazy(normal(5 * 7, 6)), vector(5 * 7)],
        num_experts=5,
        spread=1,
    ),
    ours(
        "ExpertMatMul",
        [normal(2, 4, 3, 6), EXPERTS, lazy(normal(5 * 7, 6))],
        num_experts=5,
        spread=0,
    ),
    ours("CombineExperts", [normal(2, 4, 3, 6), normal(2, 4, 3)]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_operator_gives_what_it_gives_in_onnx_runtime(case: Case) -> None:
    op = case.domain, case.name
    model, given = one_node(op, case.operands, case.attributes, case.outputs, case.kind)
    found, expected = both(model, given)
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)


def test_every_operator_of_the_dense_form_is_there_and_has_a_case() -> None:
    standard = dense_form._ELEMENT_WISE | dense_form._TOKEN_WISE | dense_form._LAST_AXIS
    own = {(DOMAIN, name) for name in dense_form._OWN - {"PoolRows", "WindowRows"}}
    assert OPERATORS.keys() == {("", name) for name in (*standard, "Gather", "MatMul")} | own
    assert {(case.domain, case.name) for case in CASES} == OPERATORS.keys()
    assert {name for domain, name in OPERATORS if domain} <= FUNCTIONS.keys()


def test_what_is_cast_to_few_bits_is_rounded_to_them() -> None:
    x = np.array([1.0001, 3.14159, -1e-3], np.float32)
    for kind, dtype in ((10, torch.float16), (16, torch.bfloat16)):
        found = OPERATORS["", "Cast"]([torch.from_numpy(x)], {"to": kind})
        assert isinstance(found, torch.Tensor)
        assert found.dtype == torch.float32
        assert torch.equal(found, torch.from_numpy(x).to(dtype).float())


def test_attention_of_few_windows_at_a_time_is_that_of_all(monkeypatch: Any) -> None:
    from optc.proof.reference.execution import attention as module

    case = attention(softcap=2.0)
    operands = [torch.from_numpy(one) for one in case.operands]
    whole = module.attention(operands, case.attributes)
    monkeypatch.setattr(module, "_SCORES", 1)
    assert torch.equal(module.attention(operands, case.attributes), whole)


@pytest.mark.parametrize("inverse", [0, 1])
def test_rotations_and_their_gradients(inverse: int) -> None:
    x = torch.randn(2, 3, 40, generator=torch.Generator().manual_seed(0), requires_grad=True)
    matrix = rotation(40, 16).T if inverse else rotation(40, 16)
    options = {"block": 16, "width": 40, "inverse": inverse}
    got = OPERATORS[DOMAIN, "BlockHadamard"]([x], options)
    assert isinstance(got, torch.Tensor)
    expected = x.detach().numpy() @ matrix
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=0, atol=2e-6)
    got.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad[0, 0].numpy(), matrix.sum(axis=1), rtol=0, atol=2e-6)
