"""``optc recipes``: the shipped recipes."""

from __future__ import annotations

import click

from optc.cli.output import json_option, print_json, show, table


@click.command("recipes", short_help="List the shipped recipes.")
@json_option
def command(as_json: bool) -> None:
    """List the shipped recipes with their passes and gates."""
    from optc.system.needs import compile_packages

    with compile_packages():
        from optc import registry
        from optc.compiling.recipes.recipe import load_recipe

        recipes = [load_recipe(name) for name in registry.recipe_files()]
    if as_json:
        print_json("recipes", {"recipes": [r.to_json() for r in recipes]})
        return
    rows = table("recipes", "name", "what", "gates", prose=["what"])
    for recipe in recipes:
        bounds = [f"{k} {v:g}" for k, v in recipe.gates.items() if v is not None]
        rows.add_row(recipe.name, recipe.description, "\n".join(bounds))
    show(rows)
