"""Shows the engines, before any work begins, nodes that a recipe leads to in any model."""

from __future__ import annotations

from collections.abc import Sequence

from optc.driver.compiling.engines import EngineTarget, engine_name
from optc.errors import UnsupportedError
from optc.recipe import Recipe


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
                found = engine.backend.supports(node, engine.target)
                if found.how == "unsupported":
                    raise UnsupportedError(
                        f"{engine_name(engine.backend, engine.target)}: {found.reason}",
                        where=one.spec(),
                        hint="choose another recipe, --set other options, or leave that engine out",
                    )
