"""Shortcuts through PyTorch's exporter, which does work again whose result is known.

It reads the sources of all its translations for every export; one reading serves a process. Its
pass that makes type promotion explicit computes every node of the graph again, though a promotion
changes no type or shape behind it; what the trace has noted of a node is as good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch.fx import Interpreter, Node

_REGISTRY = "torch.onnx._internal.exporter._registration"
_PROMOTION = "torch.onnx._internal.fx.passes.type_promotion"


@contextmanager
def known_results() -> Iterator[None]:
    """While it lasts, an export reads no translations again and computes no node again; nothing
    changes with a PyTorch whose exporter is built otherwise."""
    classes = _classes()
    if classes is None:
        yield
        return
    registry, interpreter = classes
    read, run_node = registry.__dict__["from_torchlib"], interpreter.run_node
    registry.from_torchlib = staticmethod(_copies(registry))
    interpreter.run_node = _promote
    try:
        yield
    finally:
        registry.from_torchlib = read
        interpreter.run_node = run_node


def _classes() -> tuple[Any, Any] | None:
    """The registry of translations and the pass's interpreter, if PyTorch has them."""
    try:
        registry = import_module(_REGISTRY).ONNXRegistry
        interpreter = import_module(_PROMOTION)._TypePromotionInterpreter
    except (ImportError, AttributeError):
        return None
    return (registry, interpreter) if "from_torchlib" in vars(registry) else None


@cache
def _copies(registry: Any) -> Callable[..., Any]:
    """Translations as ``registry`` reads them, each time in a registry of its own: an export adds
    translations to it."""
    read = cache(registry.from_torchlib)

    def copy(opset_version: int) -> Any:
        known = read(opset_version=opset_version)
        made = registry()
        made._opset_version = known.opset_version
        made.functions = {target: list(functions) for target, functions in known.functions.items()}
        return made

    return copy


def _promote(interpreter: Any, node: Node) -> Any:
    """The pass's step at a node: its rule, and the node's value as the trace noted it."""
    promotion = import_module(_PROMOTION)
    with interpreter._set_current_node(node):
        rule = promotion.get_type_promotion_rule(node, interpreter.type_promotion_table)
        if rule is not None:
            interpreter._maybe_promote_node(node, rule)
    if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor):
        return node.meta["val"]
    return Interpreter.run_node(interpreter, node)
