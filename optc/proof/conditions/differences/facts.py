"""Recipes, passes and versions side by side: what differs, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from optc.artifact.manifest import Manifest, PassEntry


def recipe_changes(a: Manifest, b: Manifest) -> list[dict[str, Any]]:
    """Keys of the recipes with other values, but for the pipelines, which `pass_changes` compares:
    ``key``, ``a``, ``b``; None is absent."""
    return _changes(_without_pipeline(a.recipe), _without_pipeline(b.recipe))


def version_changes(a: Manifest, b: Manifest) -> list[dict[str, Any]]:
    """Packages of other versions that compiled, or that an engine needs: ``key``, ``a``, ``b``."""
    return _changes(_versions(a), _versions(b))


def pass_changes(a: Manifest, b: Manifest) -> list[dict[str, Any]]:
    """Passes that differ, in the order of the pipelines: ``name``, and under ``a`` and ``b`` what
    each ran, ``spec`` and ``count`` (places it rewrote), or None."""
    matcher = SequenceMatcher(
        None, [p.name for p in a.passes], [p.name for p in b.passes], autojunk=False
    )
    found = []
    for _, a_start, a_stop, b_start, b_stop in matcher.get_opcodes():
        before, after = a.passes[a_start:a_stop], b.passes[b_start:b_stop]
        pairs: list[tuple[PassEntry | None, PassEntry | None]]
        if [p.name for p in before] == [p.name for p in after]:
            pairs = [(x, y) for x, y in zip(before, after, strict=True) if _ran(x) != _ran(y)]
        else:
            pairs = [(x, None) for x in before] + [(None, y) for y in after]
        found += [_pass_change(x, y) for x, y in pairs]
    return found


def _pass_change(a: PassEntry | None, b: PassEntry | None) -> dict[str, Any]:
    one = a or b
    return {"name": "" if one is None else one.name, "a": _ran(a), "b": _ran(b)}


def _ran(one: PassEntry | None) -> dict[str, Any] | None:
    return None if one is None else {"spec": one.spec, "count": one.count}


def _without_pipeline(recipe: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in recipe.items() if key != "pipeline"}


def _versions(manifest: Manifest) -> dict[str, Any]:
    needed = {
        f"{engine.name} needs {package}": version
        for engine in manifest.engines
        for package, version in engine.requires.items()
    }
    return {**manifest.packages, **needed}


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    before, after = dict(_flat(a)), dict(_flat(b))
    keys = dict.fromkeys([*before, *after])
    pairs = ((key, before.get(key), after.get(key)) for key in keys)
    return [{"key": key, "a": x, "b": y} for key, x, y in pairs if x != y]


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a JSON value by their paths, such as ``gates.kl_mean``."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{index}]")
    else:
        yield path, value
