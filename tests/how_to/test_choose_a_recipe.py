"""docs/how-to/choose-a-recipe.md: its figures are those of the measurement, its recipes exist."""

from __future__ import annotations

import re

import pytest

from optc.compiling.recipes.recipe import load_recipe
from optc.registry import recipe_files
from tests.how_to import PAGES, ROOT

RESULTS = (ROOT / "benchmarks/results/real-models.md").read_text("utf-8")
PAGE = (PAGES / "choose-a-recipe.md").read_text("utf-8")
#: Columns of the page by their headings in the results.
HEADINGS = (
    "MB of weights",
    "mean KL, nats",
    "top-1",
    "perplexity ratio",
    "bound on the mean KL",
)


def rows(text: str, heading: str) -> list[list[str]]:
    """Cells of the first table below a line that begins with ``heading``, its head first."""
    below = text[text.index(heading) :].splitlines()
    start = next(i for i, line in enumerate(below) if line.startswith("|"))
    table = below[start:]
    end = next((i for i, line in enumerate(table) if not line.startswith("|")), len(table))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[:end]]
    return [cells[0], *cells[2:]]


def measured() -> dict[str, list[str]]:
    """The results of a model and a recipe, in the order of `HEADINGS`."""
    head, *lines = rows(RESULTS, "## The recipes as they ship")
    found = {line[0]: [line[head.index(name)] for name in HEADINGS] for line in lines}
    ships = {line[0]: line[2] for line in rows(RESULTS, "| Gemma 3 |")[1:]}
    names = ("MB of weights", "mean KL, nats", "top-1 agreement", "perplexity ratio")
    bound = next(line[3] for line in rows(RESULTS, "| Gemma 3 |") if line[0] == "mean KL, nats")
    return {**found, "Gemma 3 int8-fused": [*(ships[name] for name in names), bound]}


TABLE = rows(PAGE, "## What it costs on real models")


def test_every_measured_recipe_is_there() -> None:
    assert TABLE[0][1:] == list(HEADINGS)
    assert {line[0] for line in TABLE[1:]} == set(measured())


@pytest.mark.parametrize("line", TABLE[1:], ids=lambda line: line[0])
def test_a_row_is_the_measurement_and_its_bound_the_recipes(line: list[str]) -> None:
    assert line[1:] == measured()[line[0]]
    bound = load_recipe(line[0].rsplit(" ", 1)[1]).gates["kl_mean"]
    assert bound == float(line[-1])


def test_recipes_that_are_named_exist() -> None:
    named = {
        name for line in rows(PAGE, "| you want") for name in re.findall(r"`([\w-]+)`", line[1])
    }
    assert named
    assert named <= set(recipe_files())
