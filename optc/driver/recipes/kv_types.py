"""KV types that engines keep, asked before any work begins."""

from __future__ import annotations

from collections.abc import Sequence

from optc.backend import Support
from optc.driver.compiling.engines import EngineTarget, engine_name
from optc.errors import UnsupportedError
from optc.executable.executable import KV_TYPES
from optc.recipe import Recipe

_PASS, _OPTION = "kv-cache", "dtype"


def kv_supports(request: EngineTarget) -> dict[str, Support]:
    """How an engine keeps keys and values of every type."""
    return {dtype: request.backend.kv_pools(dtype, request.target) for dtype in KV_TYPES}


def check_kv_type(recipe: Recipe, engines: Sequence[EngineTarget]) -> None:
    """Check that all engines keep keys and values of the recipe's type, if it states one.

    Raises:
        UnsupportedError: One does not; says why, and which types it takes.
    """
    for one in (p for p in recipe.pipeline.passes if p.name == _PASS):
        dtype = str(getattr(one, _OPTION))
        for engine in engines:
            found = kv_supports(engine)
            if found[dtype].how == "unsupported":
                taken = [t for t, support in found.items() if support.how != "unsupported"]
                raise UnsupportedError(
                    f"{engine_name(engine.backend, engine.target)}: {found[dtype].reason}",
                    where=f"{_PASS}.{_OPTION}={dtype}",
                    hint=f"--set {_PASS}.{_OPTION}=… with one that it takes: {', '.join(taken)}",
                )
