"""Whatever else a test of a pass looks at: a pass leaves no litter behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import onnx_ir as ir
import pytest

from optc.ir.pipeline import registry
from optc.ir.pipeline.base import Pass, PassReport
from optc.passes.canonicalize.canonicalize import STEPS


@pytest.fixture(autouse=True, scope="session")
def no_litter() -> Iterator[None]:
    """Of a model whose nodes and weights are all needed, and whose values all have a type and a
    shape, a pass makes one like it. Those of the group general write operators of ONNX, whose types
    are inferred where they are needed."""
    plain = set(registry.pass_groups()["general"])
    kinds: set[type[Pass]] = {*registry.passes().values(), *(type(step) for step in STEPS)}
    with pytest.MonkeyPatch.context() as patch:
        for one in kinds:
            patch.setattr(one, "run", _tidy(one.run, _unused if one in plain else _litter))
        yield


def _tidy(
    run: Callable[..., PassReport], litter: Callable[[ir.Model], list[str]]
) -> Callable[..., PassReport]:
    @wraps(run)
    def tidy(self: Pass, model: ir.Model, *args: Any, **kwargs: Any) -> PassReport:
        before = litter(model)
        report = run(self, model, *args, **kwargs)
        assert before or not litter(model), f"{self.name} leaves {litter(model)}"
        return report

    return tidy


def _unused(model: ir.Model) -> list[str]:
    """Nodes and weights that no output needs."""
    graph = model.graph
    unused = [
        f"the node {node.name or node.op_type}, which is not used"
        for node in graph
        if not any(value.uses() or value.is_graph_output() for value in node.outputs)
    ]
    unused += [
        f"the weight {name}, which is not used"
        for name, value in graph.initializers.items()
        if not value.uses() and not value.is_graph_output()
    ]
    return unused


def _litter(model: ir.Model) -> list[str]:
    """These, and values of which something is not known."""
    made = [value for node in model.graph for value in node.outputs if value.uses()]
    untyped = [
        f"{value.name} without a type or shape"
        for value in made
        if value.dtype is None or value.shape is None
    ]
    return _unused(model) + untyped
