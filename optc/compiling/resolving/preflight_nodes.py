"""Shows the engines, before any work begins, nodes that a recipe leads to in any model."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optc import registry
from optc.compiling.recipes.recipe import Recipe
from optc.compiling.resolving.engines import EngineTarget, engine_name, name_engines
from optc.errors import OptcError, UnsupportedError

#: Where a backend may have code for what another one lacks.
_TARGETS = ("native", "sm_120")


def check_options(recipe: Recipe, engines: Sequence[EngineTarget]) -> None:
    """Check that all engines take what the recipe's passes write, as far as that does not depend
    on the model: types and forms of weights.

    Raises:
        UnsupportedError: One does not; says which, and why, in the words of its backend.
    """
    for one in recipe.pipeline.passes:
        nodes = one.samples()
        for engine in engines:
            for node in nodes:
                found = engine.steps.supports(node, engine.target)
                if found.how == "unsupported":
                    raise UnsupportedError(
                        f"{engine_name(engine.backend, engine.target)}: {found.reason}",
                        where=one.spec(),
                        hint="choose another recipe, --set other options, or leave that engine "
                        f"out; {_takers(nodes)}",
                    )


def _takers(nodes: Sequence[ir.Node]) -> str:
    """A hint: the backends that take all of ``nodes``, on this machine's CPU or the newest GPU."""
    found = [name for name in registry.backend_names() if _takes(name, nodes)]
    return f"backends that can run it: {', '.join(found) or 'none'}"


def _takes(name: str, nodes: Sequence[ir.Node]) -> bool:
    for target in _TARGETS:
        try:
            (engine,) = name_engines(f"{name}:{target}", None, name)
            steps = engine.steps
        except OptcError:
            continue  # the backend has no code for that target, or none of models of text
        if all(steps.supports(one, engine.target).how != "unsupported" for one in nodes):
            return True
    return False
