"""Weights of a random model made such that its outputs say something.

A class as it is initialized is no test of much: gates of layers are 1e-6, biases are 0, norms have
the statistics of nothing, and a deep net without them gives the same output whatever its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

#: Spread of parameters that were all one value.
_SPREAD = 0.1
#: Of the largest value, by which outputs of two inputs differ at least.
_DIFFERS = 1e-3
Outputs = Sequence[torch.Tensor]
#: Batches that a norm takes its statistics of.
_BATCHES = 2


def enliven(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
    """Give a model random values where its class sets one, and statistics of its example.

    Args:
        module: Changed in place; its mode is evaluation afterwards.
        args: An example of its inputs, of a batch of two or more.
    """
    with torch.no_grad():
        for one in module.parameters():
            if one.is_floating_point() and one.dim() and _is_constant(one):
                value = float(one.flatten()[0])
                # what starts at nothing gets the size of a bias, a gate that of a gain
                middle = 0.0 if value == 0 else max(abs(value), _SPREAD)
                one.copy_(middle + _SPREAD * torch.randn_like(one))
        _measure_norms(module, args)
    module.eval()


def is_alive(found: Outputs, other: Outputs) -> bool:
    """True if float outputs of two inputs are finite, and some output differs by more than a
    thousandth of its largest value: a model that gives its biases whatever its input is no test."""
    floats = [(a, b) for a, b in zip(found, other, strict=True) if a.is_floating_point()]
    if not all(bool(torch.isfinite(a).all() and torch.isfinite(b).all()) for a, b in floats):
        return False
    return any(float((a - b).abs().max()) > _DIFFERS * float(a.abs().max()) for a, b in floats)


def _is_constant(one: torch.Tensor) -> bool:
    return one.numel() > 1 and bool((one == one.flatten()[0]).all())


def _measure_norms(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
    """Means and variances of batch norms, of the example and others of its kind."""
    norms = [
        one for one in module.modules() if isinstance(one, torch.nn.modules.batchnorm._BatchNorm)
    ]
    norms = [one for one in norms if one.track_running_stats]
    if not norms:
        return
    module.eval()
    for one in norms:
        one.train()
        one.reset_running_stats()
        one.momentum = None  # their plain mean
    for _ in range(_BATCHES):
        module(*[torch.randn_like(one) if one.is_floating_point() else one for one in args])
    module.eval()
