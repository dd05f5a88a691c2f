"""Hints that show what a module's forward takes."""

from __future__ import annotations

import inspect

import torch


def signature_hint(module: torch.nn.Module) -> str:
    """Forward's signature, and an example of how inputs are given."""
    signature = inspect.signature(module.forward)
    names = [
        one.name
        for one in signature.parameters.values()
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    shown = ", ".join(names) or "…"
    stated = str(signature).replace("'", "")
    return f"forward{stated} of {type(module).__name__} is called with args=({shown},)"
