"""docs/recipes.md: every key and gate of a recipe, and an example that loads."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from optc import registry
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.compiling.recipes.recipe import KEYS, load_recipe
from optc.runtime.executable.executable import KV_TYPES
from optc.system.hardware.target import parse_target

PAGE = (Path(__file__).parents[2] / "docs/recipes.md").read_text(encoding="utf-8")


def _first_column(header: str) -> list[str]:
    """Names in the first column of the table that begins with ``header``."""
    table = PAGE.split(header, 1)[1].split("\n\n", 1)[0]
    return [
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`([a-z0-9_]+)`", row.split("|")[1])
    ]


def test_every_key_of_a_recipe_is_described() -> None:
    assert _first_column("| key | is |") == list(KEYS)


def test_every_gate_is_described() -> None:
    assert tuple(_first_column("| gate | is,")) == TEXT_GENERATION.gates


def test_the_example_is_a_recipe_with_every_key(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "example.yaml"
    path.write_text(text)
    recipe = load_recipe(path)
    assert set(yaml.safe_load(text)) == set(KEYS)
    assert recipe.for_kinds({"onnxruntime"}).pipeline != recipe.for_kinds({"cuda"}).pipeline


def test_the_table_of_kv_types_is_what_backends_say() -> None:
    table = PAGE.split("| `kv-cache.dtype` |", 1)[1].split("\n\n", 1)[0].splitlines()
    kinds = {"CPU": "native", "CUDA": "cuda:sm_90"}
    engines = [cell.strip().split(", ") for cell in table[0].strip("| ").split("|")]
    assert [name for name, *_ in engines] == [
        "tvm",
        "tvm-cuda",
        "onnxruntime",
        "onnxruntime",
        "tensorrt",
    ]
    rows = [[cell.strip(" `") for cell in row.strip("| ").split("|")] for row in table[2:]]
    assert [dtype for dtype, *_ in rows] == list(KV_TYPES)
    for dtype, *cells in rows:
        for (name, *kind), cell in zip(engines, cells, strict=True):
            alone = "native" if name == "tvm" else "cuda:sm_90"
            target = parse_target(kinds[kind[0]] if kind else alone)
            found = registry.backend(name).kv_pools(dtype, target)
            said = {"native": "as it is", "unsupported": "refused"}.get(found.how, found.reason)
            assert cell == said, (name, dtype)
