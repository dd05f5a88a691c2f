"""Recurrences as nodes: while a decoder is exported, the functions that compute them are replaced.

transformers has them as functions of the modelling modules, written chunk by chunk and with names
that differ. They are known here by their parameters: a function that is given ``query``, ``key``,
``value``, ``g`` and ``beta`` computes the gated delta rule (Yang et al., arXiv:2412.06464), one
that is given ``dt``, ``A``, ``B`` and ``C`` and a chunk's size the state space dual (Dao and Gu,
arXiv:2405.21060), without one the selective scan (Gu and Dao, arXiv:2312.00752). The first two are
linear attention with a decay, the last has decays of each number of a state: one custom operator
each, which the exporter makes one node.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from transformers import PretrainedConfig

from optc.errors import UnsupportedError
from optc.importer.capturing.recurrence_operators import linear_attention, selective_scan

_DELTA = frozenset({"query", "key", "value", "g", "beta", "chunk_size"})
_SPACE = frozenset({"dt", "A", "B", "C", "chunk_size", "dt_bias"})
_SCAN = frozenset({"hidden_states", "dt", "A", "B", "C", "delta_bias", "delta_softplus"})
#: Parameters of such functions that change no result of whole sequences.
_WITHOUT_MEANING = frozenset(
    {
        *("chunk_size", "output_final_state", "return_final_states"),
        *("use_mambapy", "use_associative_scan"),
    }
)
#: What kernels know, among what callers forward from the model's own arguments.
_OF_KERNELS = frozenset({"scale", "z", "seq_idx", "cu_seqlens"})
#: Makes what stands for a function, of it and of what is traced instead.
Replace = Callable[[Callable[..., Any], Callable[..., Any]], Callable[..., Any]]
#: What a vector's squared length has added, where the module does not say.
_EPSILON = 1e-6


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
        if use_qk_l2norm_in_kernel:
            query, key = _unit(query, epsilon), _unit(key, epsilon)
        scale = query.shape[-1] ** -0.5
        return linear_attention(query, key, value, g, beta, scale, 1), None

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
    result = linear_attention(C, B, hidden_states, A * dt, dt, 1.0, 0)
    if D is not None:
        result = result + D[..., None] * hidden_states
    return (result, None) if return_final_states else result


def _scanned(  # noqa: PLR0913 - what transformers gives
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    delta_bias: torch.Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    **_: object,
) -> Any:
    """hidden_states, dt, z [B, C, S], A [C, N], B and C [B, N, S] -> [B, C, S]."""
    x, dt, B, C = (value.transpose(1, 2) for value in (hidden_states, dt, B, C))
    dt = dt if delta_bias is None else dt + delta_bias
    dt = F.softplus(dt) if delta_softplus else dt
    result = selective_scan(C, B, x * dt, dt, A.transpose(0, 1))
    result = result if D is None else result + x * D
    result = result if z is None else result * F.silu(z.transpose(1, 2))
    result = result.transpose(1, 2)
    return (result, None) if return_last_state else result


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
    if names >= _SPACE:
        return _by_name(function, _state_space)
    return _by_name(function, _scanned) if names >= _SCAN else None


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
