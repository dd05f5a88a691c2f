"""Recipes: a named pipeline with its backend and gates, written in YAML (docs/recipes.md).

```yaml
name: int4-fused
description: one line for `optc recipes`
backend: tvm
pipeline:                      # a pass, a pass with options, or a whole group by its name
  - canonicalize
  - quantize-weights: {bits: 4, group_size: 32}
  - fuse-rotary: {optional: true}   # may fire zero times; required: true stops the compile then
gates:                         # null: measured and reported, not judged
  kl_mean: 0.02
for_engines:                   # with engines of a backend or kind of target: other options
  onnxruntime: {quantize-weights.symmetric: true}
```
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from optc import registry
from optc.artifact.jsonio import canonical_json
from optc.errors import InputError
from optc.forms.decoder import Exported
from optc.near import near, nearest
from optc.pipeline.pipeline import Pipeline
from optc.pipeline.spec import MARKS, OPTIONAL, REQUIRED
from optc.runtime.requests.checks import shown

#: Gates a recipe may bound. KL and perplexity have upper bounds, agreement and speedups lower ones.
GATE_NAMES = (
    "kl_mean",
    "kl_p99",
    "top1_agreement",
    "perplexity",
    "perplexity_ratio",
    "prefill_speedup",
    "decode_speedup",
)

#: Largest recipe that is read: many times the longest one, and done in a second.
MAX_CHARACTERS = 1 << 16

Scalar = bool | int | float | str


class Step(BaseModel):
    """One entry of a pipeline: a pass or a group, its options, and whether it may or must not fire
    never."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    options: dict[str, Scalar] = {}
    optional: bool = False
    required: bool = False

    def spec(self) -> str:
        """The entry as text of a pipeline spec: ``name{option=value,…}``."""
        marks = {OPTIONAL: self.optional, REQUIRED: self.required}
        options = {**self.options, **{mark: True for mark, is_set in marks.items() if is_set}}
        texts = [f"{key}={option_text(value)}" for key, value in options.items()]
        return f"{self.name}{{{','.join(texts)}}}" if texts else self.name


class Recipe(BaseModel):
    """A validated recipe.

    Attributes:
        name: As given on the command line.
        description: One line.
        backend: Registry name of the backend.
        pipeline: Passes in order, groups already expanded.
        gates: Bounds by gate name; None is measured and reported, not judged.
        for_engines: Options (``pass.option``) by the backends and kinds of target that want them;
            empty once they are applied (`for_kinds`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    description: str = ""
    backend: str = "tvm"
    pipeline: tuple[Step, ...]
    gates: dict[str, FiniteFloat | None] = {}
    for_engines: dict[str, dict[str, Scalar]] = {}

    def for_kinds(self, kinds: Collection[str], chosen: Collection[str] = ()) -> Recipe:
        """The recipe for engines of these backends and kinds of target, all of which are built of
        the same graph; ``chosen`` are options (``pass.option``) that stay as they are."""
        recipe = self
        for kind, options in self.for_engines.items():
            if kind in kinds:
                recipe = _with_engine_options(recipe, options, chosen)
        return recipe.model_copy(update={"for_engines": {}})

    def spec(self) -> str:
        """The pipeline as one text."""
        return ",".join(step.spec() for step in self.pipeline)

    def to_json(self) -> dict[str, Any]:
        """The recipe as stored in the manifest: without options that are paths."""
        stored = self.model_dump(mode="json", exclude={"for_engines"})
        for step in stored["pipeline"]:
            for name in registry.passes()[step["name"]].local_options():
                step["options"].pop(name, None)
        return stored


def option_text(value: Scalar) -> str:
    """An option's value as the text that passes parse."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def load_recipe(
    source: str | Path, *, sets: Iterable[str] = (), gates: Iterable[str] = ()
) -> Recipe:
    """Read, override and validate a recipe.

    Args:
        source: Name of a shipped recipe, or path of a YAML file.
        sets: Overrides ``pass.option=value``.
        gates: Overrides ``name=bound``; the bound ``none`` switches judging off.

    Raises:
        InputError: Unknown recipe, key, pass, option or gate, or a value of the wrong type;
            the hint names what is near. Also passes in an order that one of them forbids.
    """
    text, where = _read(source)
    recipe = _parse(text, where)
    _check_storable(recipe, where)
    for options in recipe.for_engines.values():
        _with_engine_options(recipe, options, (), where)
    recipe = _with_sets(recipe, sets)
    _check_storable(recipe, "--set")
    recipe = _with_gates(recipe, gates)
    Pipeline.parse(recipe.spec(), registry).validate(Exported)
    return recipe


def _read(source: str | Path) -> tuple[str, str]:
    """Text of the recipe and the name for messages."""
    path = Path(source)
    if isinstance(source, Path) or path.suffix in (".yaml", ".yml"):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"cannot read the recipe: {reason}", where=str(path)) from error
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
    steps = raw.get("pipeline")
    if not isinstance(steps, list) or not steps:
        raise InputError("'pipeline' must be a list with at least one pass", where=where)
    expanded = [step for entry in steps for step in _steps(entry, where)]
    try:
        recipe = Recipe.model_validate({**raw, "pipeline": expanded})
    except ValidationError as error:
        raise _invalid(error, where) from error
    for name in recipe.gates:
        _check_gate(name, where)
    return recipe


def _check_storable(recipe: Recipe, where: str) -> None:
    """The recipe goes into the manifest, which takes no NaN and no half of a surrogate pair."""
    try:
        canonical_json(recipe.model_dump())
    except ValueError as error:
        raise InputError(f"holds what no manifest can: {error}", where=where) from error


def _steps(entry: object, where: str) -> list[dict[str, Any]]:
    """The steps of one pipeline entry: one pass, or every pass of a group."""
    if isinstance(entry, str):
        name, options = entry, dict[str, Any]()
    elif isinstance(entry, dict) and len(entry) == 1:
        (name, options) = next(iter(entry.items()))
        options = {} if options is None else options
    else:
        raise _no_entry(entry, where)
    if not isinstance(name, str) or not isinstance(options, dict):
        raise _no_entry(entry, where)
    groups = registry.pass_groups()
    if name in groups and name not in registry.passes():
        if options:
            raise InputError(
                f"the group {name!r} takes no options", where=where, hint="list its passes"
            )
        return [{"name": member.name} for member in groups[name]]
    _check_pass(name, where)
    plain = {key: value for key, value in options.items() if key not in MARKS}
    return [{"name": name, "options": plain, **{m: options[m] for m in MARKS if m in options}}]


def _no_entry(entry: object, where: str) -> InputError:
    """The message is of bounded length: a few aliases of YAML make a value of gigabytes."""
    return InputError(
        f"{shown(entry)} is no pipeline entry",
        where=where,
        hint="write 'pass' or 'pass: {…}'",
    )


def _with_sets(recipe: Recipe, sets: Iterable[str], where: str = "--set") -> Recipe:
    steps = list(recipe.pipeline)
    for text in sets:
        target, equals, value = text.partition("=")
        name, dot, option = target.partition(".")
        if not (equals and dot and name and option):
            raise InputError(f"{text!r} is not pass.option=value", where=where)
        _check_pass(name, where)
        places = [i for i, step in enumerate(steps) if step.name == name]
        if not places:
            raise InputError(
                f"the recipe {recipe.name!r} does not run the pass {name!r}",
                where=where,
                hint=f"its passes: {', '.join(step.name for step in steps)}",
            )
        for i in places:
            options = {**steps[i].options, option: value}
            steps[i] = steps[i].model_copy(update={"options": options})
    return recipe.model_copy(update={"pipeline": tuple(steps)})


def _with_engine_options(
    recipe: Recipe, options: dict[str, Scalar], chosen: Collection[str], where: str = ""
) -> Recipe:
    sets = [f"{k}={option_text(v)}" for k, v in options.items() if k not in chosen]
    return _with_sets(recipe, sets, f"{where}, for_engines")


def _with_gates(recipe: Recipe, gates: Iterable[str]) -> Recipe:
    bounds = dict(recipe.gates)
    for text in gates:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{text!r} is not name=bound", where="--gate")
        _check_gate(name, "--gate")
        bounds[name] = None if value.lower() == "none" else _bound(name, value)
    return recipe.model_copy(update={"gates": bounds})


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


def _check_pass(name: str, where: str) -> None:
    known = list(registry.passes())
    if name in known:
        return
    groups = [group for group in registry.pass_groups() if group not in known]
    if name in groups:
        members = ", ".join(member.name for member in registry.pass_groups()[name])
        raise InputError(
            f"{name!r} is a group of passes", where=where, hint=f"name one of them: {members}"
        )
    found = nearest(name, [*known, *groups])
    lists = f"passes: {', '.join(known)}; groups: {', '.join(groups)}"
    raise InputError(
        f"unknown pass {name!r}",
        where=where,
        hint=f"did you mean {found!r}?" if found else lists,
    )


def _check_gate(name: str, where: str) -> None:
    if name not in GATE_NAMES:
        raise InputError(f"unknown gate {name!r}", where=where, hint=near(name, GATE_NAMES))


def _invalid(error: ValidationError, where: str) -> InputError:
    """The first problem that pydantic found, in words of ours."""
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = list(Recipe.model_fields)
        return InputError(f"unknown key {key!r}", where=where, hint=near(key, known))
    if problem["type"] == "missing":
        return InputError(f"the key {key!r} is missing", where=where)
    return InputError(f"the key {key!r}: {problem['msg']}", where=where)
