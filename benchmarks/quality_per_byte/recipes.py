"""Recipes that are judged."""

from __future__ import annotations

from optc import registry
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.compiling.recipes.recipe import load_recipe


def tvm_recipes() -> list[str]:
    """The shipped recipes for TVM, of models that generate text."""
    found = {name: load_recipe(name) for name in registry.recipe_files()}
    of_text = (name for name, one in found.items() if one.task == TEXT_GENERATION.name)
    return [name for name in of_text if found[name].backend == "tvm"]
