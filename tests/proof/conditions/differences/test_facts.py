"""Recipes, passes and versions side by side."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from optc.artifact.manifest import Manifest, PassEntry
from optc.proof.conditions.differences.facts import pass_changes, recipe_changes, version_changes
from tests.artifact.toy import toy_engine, toy_manifest


def manifest(**more: Any) -> Manifest:
    return replace(toy_manifest(()), **more)


def passes(*specs: str) -> tuple[PassEntry, ...]:
    return tuple(PassEntry(spec.partition("{")[0], spec, 1) for spec in specs)


def test_recipes_by_key() -> None:
    a = {"name": "x", "gates": {"kl_mean": 1, "kl_p99": 2}, "pipeline": [{"name": "a"}], "l": [1]}
    b = {"name": "x", "gates": {"kl_mean": 3}, "pipeline": [], "l": [1, "two"]}
    assert recipe_changes(manifest(recipe=a), manifest(recipe=b)) == [
        {"key": "gates.kl_mean", "a": 1, "b": 3},
        {"key": "gates.kl_p99", "a": 2, "b": None},
        {"key": "l[1]", "a": None, "b": "two"},
    ]
    assert recipe_changes(manifest(recipe=a), manifest(recipe=a)) == []


def test_versions_of_what_compiled_and_of_what_engines_need() -> None:
    newer = replace(toy_engine(), requires={"apache-tvm-ffi": "==2"})
    changed = manifest(packages={"optc": "0.2.0"}, engines=(newer,))
    assert version_changes(manifest(), changed) == [
        {"key": "optc", "a": "0.1.0", "b": "0.2.0"},
        {"key": "target needs apache-tvm-ffi", "a": None, "b": "==2"},
    ]


def test_passes_that_were_added_left_out_or_changed() -> None:
    a = manifest(passes=passes("first", "fuse", "q{bits=8}", "last"))
    b = manifest(passes=passes("first", "q{bits=4}", "more", "last"))
    q8, q4 = {"spec": "q{bits=8}", "count": 1}, {"spec": "q{bits=4}", "count": 1}
    assert pass_changes(a, b) == [
        {"name": "fuse", "a": {"spec": "fuse", "count": 1}, "b": None},
        {"name": "q", "a": q8, "b": q4},
        {"name": "more", "a": None, "b": {"spec": "more", "count": 1}},
    ]
    assert pass_changes(a, a) == []


def test_a_pass_that_rewrote_other_places() -> None:
    more = replace(toy_manifest(()).passes[0], count=3)
    (found,) = pass_changes(manifest(), manifest(passes=(more,)))
    assert (found["a"]["count"], found["b"]["count"]) == (2, 3)
