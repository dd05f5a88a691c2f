"""Recurrences as nodes: while a decoder is exported, the functions that compute them are replaced.

transformers has them as functions of the modelling modules, written chunk by chunk and with names
that differ. They are known here by their parameters: a function that is given ``query``, ``key``,
``value``, ``g`` and ``beta`` computes the gated delta rule (Yang et al., arXiv:2412.06464), one
that is given ``dt``, ``A``, ``B`` and ``C`` the state space dual (Dao and Gu, arXiv:2405.21060).
Both are linear attention with a decay: one custom operator, which the exporter makes one node.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from transformers import PretrainedConfig

from optc.errors import UnsupportedError

_DELTA = frozenset({"query", "key", "value", "g", "beta", "chunk_size"})
_SPACE = frozenset({"dt", "A", "B", "C", "chunk_size", "dt_bias"})
#: Parameters of such functions that change no result of whole sequences.
_WITHOUT_MEANING = frozenset({"chunk_size", "output_final_state", "return_final_states"})
#: What kernels know, among what callers forward from the model's own arguments.
_OF_KERNELS = frozenset({"scale", "z", "seq_idx", "cu_seqlens"})
#: Makes what stands for a function, of it and of what is traced instead.
Replace = Callable[[Callable[..., Any], Callable[..., Any]], Callable[..., Any]]
#: What a vector's squared length has added, where the module does not say.
_EPSILON = 1e-6


@torch.library.custom_op("optc::linear_attention", mutates_args=())
def _linear_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    scale: float,
    delta: int,
) -> torch.Tensor:
    """Operator for tracing only: q, k [B, S, Hk, Dk], v [B, S, H, Dv], decay, beta [B, S, H] ->
    [B, S, H, Dv]."""
    raise NotImplementedError("optc::linear_attention is only traced, never run")


@_linear_attention.register_fake
def _linear_attention_shape(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    scale: float,
    delta: int,
) -> torch.Tensor:
    return v.new_empty(v.shape)


def _delta_rule(epsilon: float) -> Callable[..., Any]:
    def function(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        initial_state: object = None,
        use_qk_l2norm_in_kernel: bool = False,
        **_: object,
    ) -> tuple[torch.Tensor, None]:
        _check(initial_state)
        if g.dim() != 3:
            raise UnsupportedError("a delta rule with a decay of each channel is not supported")
        if use_qk_l2norm_in_kernel:
            query, key = _unit(query, epsilon), _unit(key, epsilon)
        scale = query.shape[-1] ** -0.5
        return _linear_attention(query, key, value, g, beta, scale, 1), None

    return function


def _unit(x: torch.Tensor, epsilon: float) -> torch.Tensor:
    """x [..., d] over its length, which is a norm of heads with a weight of 1 / sqrt(d)."""
    size = x.shape[-1]
    weight = torch.full((size,), size**-0.5)
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon / size))


def _state_space(  # noqa: PLR0913 - what transformers gives
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    chunk_size: int,
    D: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    initial_states: object = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    **_: object,
) -> Any:
    _check(initial_states)
    dt = dt if dt_bias is None else dt + dt_bias
    dt = F.softplus(dt) if dt_softplus else dt
    low, high = dt_limit
    if low > 0 or not dt_softplus:
        dt = torch.clamp(dt, min=low)
    if high != float("inf"):
        dt = torch.clamp(dt, max=high)
    result = _linear_attention(C, B, hidden_states, A * dt, dt, 1.0, 0)
    if D is not None:
        result = result + D[..., None] * hidden_states
    return (result, None) if return_final_states else result


def _check(state: object) -> None:
    if state is not None:
        raise UnsupportedError("a recurrence that begins with a state of its own is not supported")


def _replacement(module: Any, function: object) -> Callable[..., Any] | None:
    """The stand-in for a function of a modelling module while it is exported, if it is one."""
    if not inspect.isfunction(function) or function.__module__ != module.__name__:
        return None
    names = set(inspect.signature(function).parameters)
    if names >= _DELTA:
        lengths = getattr(module, "l2norm", None)
        stated = inspect.signature(lengths).parameters if lengths is not None else {}
        epsilon = stated["eps"].default if "eps" in stated else _EPSILON
        return _by_name(function, _delta_rule(epsilon))
    return _by_name(function, _state_space) if names >= _SPACE else None


def _by_name(function: Callable[..., Any], traced: Callable[..., Any]) -> Callable[..., Any]:
    """``traced`` with the arguments of ``function``, in whatever order that has them.

    Raises:
        UnsupportedError: One is given that ``traced`` does not know, and means something.
    """
    signature = inspect.signature(function)
    taken = set(inspect.signature(traced).parameters) - {"_"}

    def standing(*args: object, **kwargs: object) -> Any:
        given = dict(signature.bind(*args, **kwargs).arguments)
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                forwarded = given.pop(name, {})
                given |= {n: v for n, v in forwarded.items() if n in taken | _OF_KERNELS}
        for name in [name for name in given if name not in taken]:
            value = given.pop(name)
            stated = signature.parameters.get(name)
            means = value is not None and (stated is None or value is not stated.default)
            if means and name not in _WITHOUT_MEANING:
                raise UnsupportedError(f"a recurrence with {name} is not supported")
        return traced(**given)

    return standing


def has_known(config: PretrainedConfig) -> bool:
    """True if transformers' class for a configuration has recurrences that are known here."""
    name = type(config).__module__.replace(".configuration_", ".modeling_")
    try:
        module = importlib.import_module(name)
    except ImportError:
        return False
    return any(_replacement(module, function) for function in vars(module).values())


@contextmanager
def captured(decoder: torch.nn.Module) -> Iterator[None]:
    """While it lasts, recurrences of the modules of ``decoder`` are traced as nodes."""
    with replaced(decoder, lambda function, traced: traced):
        yield


@contextmanager
def replaced(decoder: torch.nn.Module, by: Replace) -> Iterator[None]:
    """While it lasts, ``by(function, traced)`` stands for each function of a recurrence of the
    modules of ``decoder``; ``traced`` is what stands for it in an export."""
    changed: list[tuple[Any, str, object]] = []
    for name in {type(module).__module__ for module in decoder.modules()}:
        module = sys.modules[name]
        for attribute, function in list(vars(module).items()):
            if (traced := _replacement(module, function)) is not None:
                changed.append((module, attribute, function))
                setattr(module, attribute, by(function, traced))
    try:
        yield
    finally:
        for module, attribute, function in changed:
            setattr(module, attribute, function)


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The exporter's table from torch operators to nodes; makes the exporter know the nodes."""
    import onnxscript  # takes a second, and cannot be imported once a schema is registered

    parameter, kinds = onnx.defs.OpSchema.FormalParameter, onnx.defs.OpSchema.AttrType
    schema = onnx.defs.OpSchema(
        "LinearAttention",
        "optc",
        1,
        inputs=[parameter(name, "T") for name in ("q", "k", "v", "decay", "beta")],
        outputs=[parameter("y", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
        attributes=[
            onnx.defs.OpSchema.Attribute("scale", kinds.FLOAT, "", required=False),
            onnx.defs.OpSchema.Attribute("delta", kinds.INT, "", required=False),
        ],
    )
    if not onnx.defs.has(schema.name, schema.domain):
        onnx.defs.register_schema(schema)
    domain = onnxscript.values.Opset("optc", 1)

    def translate(
        q: Any, k: Any, v: Any, decay: Any, beta: Any, scale: float = 1.0, delta: int = 0
    ) -> Any:
        return domain.LinearAttention(q, k, v, decay, beta, scale=scale, delta=delta)

    return {torch.ops.optc.linear_attention.default: translate}
