"""Recipes in YAML, and what the command line overrides of them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import yaml

from tests.fuzz.edits import edit_json, edit_text
from tests.fuzz.form import FileFormat, Materials
from tests.fuzz.outcome import ROOT

_RECIPE, _SETS, _GATES = "recipe.yaml", "sets.txt", "gates.txt"
_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n"
    for a, b in zip("abcdefghi", "bcdefghij", strict=True)
)
_LONG = ["x" * 999, "[" * 3000, "{a: " * 900, "- " * 3000, "9" * 5000, "|\n", ">-\n", "---\n", "\t"]
WORDS = [
    *r"""name:
pipeline:
gates:
for_engines:
backend:
-
- -
?
:
{}
[]
null
~
.nan
.inf
-.inf
0x10
1e400
1_000
012
2001-01-01
12:30
!!python/object/apply:os.system [x]
!!binary aGk=
!!set {a}
!!float x
!x y
%YAML 9
&a [*a]
*a
<<: *a
<<: [1]
'
"
"\ud800"
kl_mean:
canonicalize
quantize-weights: {bits: 4}
kv-cache: {tree: true}
optional
int4
bits: 99
group_size: 0
group_size: -1
dtype:
onnxruntime:
cuda:""".splitlines(),
    *_LONG,
    _BOMB,
]
_OVERRIDES = (
    b"quantize-weights.bits=4\nkv-cache.dtype=int8\nquantize-weights.symmetric=false\n",
    b"",
)
_BOUNDS = (b"kl_mean=0.1\ntop1_agreement=none\n", b"")


class Recipes(FileFormat):
    """A recipe with its overrides, its spec, and what the manifest keeps of it."""

    name = "recipe"

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        shipped = sorted((ROOT / "recipes").glob("*.yaml"))
        return [
            {_RECIPE: path.read_bytes(), _SETS: sets, _GATES: gates}
            for path in shipped
            for sets in _OVERRIDES
            for gates in _BOUNDS
        ]

    def targets(self, files: object) -> list[str]:
        return [_RECIPE, _RECIPE, _RECIPE, _SETS, _GATES]

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        if name == _RECIPE and random.random() < 0.4:
            return _edit_tree(random, data)
        return edit_text(random, data, WORDS)

    def check(self, folder: Path) -> None:
        from optc.artifact.jsonio import canonical_json
        from optc.compiling.recipes.recipe import load_recipe

        recipe = load_recipe(
            folder / _RECIPE,
            sets=_lines(folder / _SETS),
            gates=_lines(folder / _GATES),
        )
        for kinds in (["onnxruntime"], ["tvm", "cuda"]):
            applied = recipe.for_kinds(kinds)
            applied.pipeline.spec()
            canonical_json(applied.to_json())


def _edit_tree(random: Random, data: bytes) -> bytes:
    """A change of a value, by way of JSON, which is YAML as well."""
    try:
        text = json.dumps(yaml.safe_load(data)).encode()
    except (ValueError, yaml.YAMLError, RecursionError, TypeError):
        return edit_text(random, data, WORDS)
    return edit_json(random, text)


def _lines(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8", "surrogateescape").splitlines()
