"""Recipes: a named pipeline with its backend and gates, written in YAML (docs/recipes.md).

```yaml
name: int4-fast
description: one line for `optc recipes`
task: text-generation          # the default
backend: tvm
pipeline:                      # a pass, a pass with options, or a whole group by its name
  - canonicalize
  - quantize-weights: {bits: 4, group_size: 32}
  - fuse-rotary: {optional: true}   # may fire zero times; required: true stops the compile then
gates:                         # null: measured and reported, not judged
  kl_mean: 0.02
for_engines:                   # with engines of a backend or kind of target: other options
  onnxruntime: {quantize-weights.symmetric: true}
otherwise: products-int8       # named tensors: the recipe for other backends and other models
encoder:                       # encoder-decoders: how the encoder is compiled
  pipeline: [pack-rows, fuse-qkv]
decoder:                       # and steps of the decoder
  pipeline: [canonicalize, kv-cache]
```
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from optc import registry
from optc.artifact.jsonio import canonical_json
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.compiling.recipes.part import (
    PARTS,
    PartKeys,
    PartRecipe,
    pipeline_json,
    read_parts,
    with_changes,
)
from optc.errors import InputError
from optc.ir.forms.batched import BatchedTensors
from optc.ir.forms.decoder import Exported
from optc.ir.pipeline import registry as pass_registry
from optc.ir.pipeline.entries import check_pass, read_pipeline, with_options
from optc.ir.pipeline.option_values import shortened
from optc.ir.pipeline.pipeline import Pipeline
from optc.system.options.user_text import read_user_text
from optc.system.suggest import near

#: The task of a recipe that names none.
_TEXT = TEXT_GENERATION.name
#: The bound of a gate that is reported without judging; alone, of all gates.
NOT_JUDGED = "none"

#: Largest recipe that is read: many times the longest one, and done in a second.
MAX_CHARACTERS = 1 << 16


class _File(BaseModel):
    """The keys of a recipe's file."""

    model_config = ConfigDict(extra="forbid")
    name: str
    description: str = ""
    task: str = _TEXT
    backend: str = "tvm"
    pipeline: list[Any]
    gates: dict[str, FiniteFloat | None] = {}
    for_engines: dict[str, dict[str, Any]] = {}
    otherwise: str = ""
    encoder: PartKeys | None = None
    decoder: PartKeys | None = None


#: The keys of a recipe's file.
KEYS = tuple(_File.model_fields)


@dataclass(frozen=True)
class Recipe:
    """A validated recipe.

    Attributes:
        name: As given on the command line.
        description: One line.
        backend: Registry name of the backend.
        pipeline: Its passes.
        gates: Bounds by gate name; None is measured and reported, not judged.
        task: Name of the task that it is for.
        for_engines: Options (``pass.option``) by the backends and kinds of target that want them;
            empty once they are applied (`for_kinds`).
        otherwise: Name of the recipe of named tensors for what this one does not take: models that
            its passes do not recognize, and engines of other backends. Empty: there is none.
        parts: Of encoder-decoders: by key, how one half is compiled; where that cannot be, and
            where there is none, ``backend`` and ``pipeline`` are for that half.
    """

    name: str
    description: str
    backend: str
    pipeline: Pipeline
    gates: Mapping[str, float | None]
    for_engines: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    task: str = _TEXT
    otherwise: str = ""
    parts: Mapping[str, PartRecipe] = field(default_factory=dict)

    def for_kinds(self, kinds: Collection[str], chosen: Collection[str] = ()) -> Recipe:
        """The recipe for engines of these backends and kinds of target, all of which are built of
        the same graph; ``chosen`` are options (``pass.option``) that stay as they are."""
        pipeline = self.pipeline
        for kind, options in self.for_engines.items():
            if kind in kinds:
                wanted = {key: value for key, value in options.items() if key not in chosen}
                pipeline = with_options(pipeline, wanted, f"for_engines, {kind}")
        return replace(self, pipeline=pipeline, for_engines={})

    def own_parts(self, backends: object) -> Mapping[str, PartRecipe]:
        """`parts` that count: none where ``backends`` are asked for, which are for both models."""
        return {} if backends else self.parts

    def to_json(self) -> dict[str, Any]:
        """The recipe as stored in the manifest: without options at their defaults and paths."""
        return {
            "name": self.name,
            "description": self.description,
            "task": self.task,
            "backend": self.backend,
            "pipeline": pipeline_json(self.pipeline),
            "gates": dict(self.gates),
            **{key: part.to_json() for key, part in self.parts.items()},
        }


def load_recipe(
    source: str | Path, *, sets: Iterable[str] = (), gates: Iterable[str] = ()
) -> Recipe:
    """Read, override and validate a recipe.

    Args:
        source: Name of a shipped recipe, or path of a YAML file.
        sets: Overrides ``pass.option=value``.
        gates: Overrides ``name=bound``; the bound ``none`` switches judging off, and ``none`` alone
            does so for all gates.

    Raises:
        InputError: Unknown recipe, key, pass, option or gate, or a value of the wrong type;
            the hint names what is near. Also passes in an order that one of them forbids.
    """
    text, where = _read(source)
    recipe = _parse(text, where)
    pipeline, parts = with_changes(recipe.pipeline, recipe.parts, _sets(sets), "--set")
    recipe = replace(recipe, pipeline=pipeline, parts=parts)
    _check_storable(recipe, "--set")
    recipe = _with_gates(recipe, gates)
    recipe.pipeline.validate(Exported if recipe.task == _TEXT else BatchedTensors)
    return recipe


def _read(source: str | Path) -> tuple[str, str]:
    """Text of the recipe and the name for messages."""
    path = Path(source)
    if isinstance(source, Path) or path.suffix in (".yaml", ".yml"):
        text = read_user_text(path, what="the recipe")
        if len(text) > MAX_CHARACTERS:
            raise InputError(
                f"has {len(text)} characters, a recipe {MAX_CHARACTERS} at most", where=str(path)
            )
        return text, str(path)
    known = registry.recipe_files()
    if source not in known:
        raise InputError(
            f"unknown recipe {source!r}", where="--recipe", hint=near(source, list(known))
        )
    return known[source].read_text(encoding="utf-8"), f"recipe {source}"


def _parse(text: str, where: str) -> Recipe:
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"is not YAML: {' '.join(str(error).split())}", where=where) from error
    except RecursionError as error:
        raise InputError("is nested too deeply", where=where) from error
    # What PyYAML makes of a value that is not of the type that its tag or form announces.
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise InputError(f"holds a value that YAML does not allow: {error}", where=where) from error
    if not isinstance(raw, dict):
        raise InputError("is not a mapping of keys to values", where=where)
    try:
        read = _File.model_validate(raw)
    except ValidationError as error:
        raise _invalid(error, where) from error
    if not read.pipeline:
        raise InputError("'pipeline' must be a list with at least one pass", where=where)
    for name in read.gates:
        _check_gate(name, where)
    recipe = Recipe(
        name=read.name,
        description=read.description,
        backend=read.backend,
        pipeline=read_pipeline(read.pipeline, pass_registry, where),
        gates=read.gates,
        for_engines=read.for_engines,
        task=_known_task(read.task, where),
        otherwise=_known_recipe(read.otherwise, where),
        parts=read_parts({key: getattr(read, key) for key in PARTS}, where),
    )
    for options in read.for_engines.values():
        _check_keys(options, f"{where}, for_engines")
        with_options(recipe.pipeline, options, f"{where}, for_engines")
    _check_storable(recipe, where)
    return recipe


def _known_task(name: str, where: str) -> str:
    known = registry.tasks()
    if name not in known:
        raise InputError(f"unknown task {name[:80]!r}", where=where, hint=near(name, list(known)))
    return name


def _known_recipe(name: str, where: str) -> str:
    known = registry.recipe_files()
    if name and name not in known:
        raise InputError(f"unknown recipe {name[:80]!r}", where=where, hint=near(name, list(known)))
    return name


def _check_storable(recipe: Recipe, where: str) -> None:
    """The recipe goes into the manifest, which takes no NaN and no half of a surrogate pair."""
    try:
        canonical_json([recipe.to_json(), recipe.for_engines])
    except ValueError as error:
        raise InputError(f"holds what no manifest can: {error}", where=where) from error


def _sets(texts: Iterable[str]) -> dict[str, object]:
    """Values by ``pass.option``."""
    changes: dict[str, object] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{text!r} is not pass.option=value", where="--set")
        changes[key] = value
    _check_keys(changes, "--set")
    return changes


def _check_keys(changes: Mapping[str, object], where: str) -> None:
    for key, value in changes.items():
        name, dot, option = key.partition(".")
        if not (dot and name and option):
            raise InputError(f"{shortened(f'{key}={value}')} is not pass.option=value", where=where)
        check_pass(name, pass_registry, where)


def _with_gates(recipe: Recipe, gates: Iterable[str]) -> Recipe:
    bounds = dict(recipe.gates)
    for text in gates:
        name, equals, value = text.partition("=")
        if text.lower() == NOT_JUDGED:
            bounds = dict.fromkeys(bounds)
            continue
        if not equals:
            raise InputError(
                f"{text!r} is not name=bound",
                where="--gate",
                hint=f"'{NOT_JUDGED}' alone measures all gates and judges none",
            )
        _check_gate(name, "--gate")
        bounds[name] = None if value.lower() == NOT_JUDGED else _bound(name, value)
    return replace(recipe, gates=bounds)


def _bound(gate: str, text: str) -> float:
    try:
        bound = float(text)
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise InputError(
            f"the bound {text!r} of {gate!r} is not a number",
            where="--gate",
            hint="a number, or 'none' to report without judging",
        )
    return bound


def _check_gate(name: str, where: str) -> None:
    known = registry.measures()
    if name not in known:
        raise InputError(f"unknown gate {name!r}", where=where, hint=near(name, list(known)))


def _invalid(error: ValidationError, where: str) -> InputError:
    """The first problem that pydantic found, in words of ours."""
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return InputError(f"unknown key {key!r}", where=where, hint=near(key, KEYS))
    if problem["type"] == "missing":
        return InputError(f"the key {key!r} is missing", where=where)
    return InputError(f"the key {key!r}: {problem['msg']}", where=where)
