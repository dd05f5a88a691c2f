"""KV types that engines keep, asked before any work begins."""

from __future__ import annotations

from collections.abc import Sequence

from optc.backend import Support
from optc.compiling.recipes.recipe import Recipe
from optc.compiling.resolving.engines import EngineTarget, engine_name
from optc.errors import UnsupportedError
from optc.ir.forms.ragged import RaggedStep
from optc.runtime.executable.executable import KV_TYPES

#: The option of a pass that leads to a ragged step: the type of its keys and values.
_OPTION = "dtype"


def kv_supports(request: EngineTarget) -> dict[str, Support]:
    """The support of every type of keys and values by an engine, by type."""
    return {dtype: request.steps.kv_pools(dtype, request.target) for dtype in KV_TYPES}


def check_kv_type(recipe: Recipe, engines: Sequence[EngineTarget]) -> None:
    """Check that all engines keep keys and values of the recipe's type, if it states one.

    Raises:
        UnsupportedError: One does not; says why, and which types it takes.
    """
    for one in recipe.pipeline.passes:
        if one.gives is not RaggedStep or not hasattr(one, _OPTION):
            continue
        dtype = str(getattr(one, _OPTION))
        for engine in engines:
            found = kv_supports(engine)
            if found[dtype].how == "unsupported":
                taken = [t for t, support in found.items() if support.how != "unsupported"]
                raise UnsupportedError(
                    f"{engine_name(engine.backend, engine.target)}: {found[dtype].reason}",
                    where=f"{one.name}.{_OPTION}={dtype}",
                    hint=f"--set {one.name}.{_OPTION}=… with one that it takes: {', '.join(taken)}",
                )
