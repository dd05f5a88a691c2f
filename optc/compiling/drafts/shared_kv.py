"""Drafts made of the target that can use its keys and values while they draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from optc.compiling.building.built_engine import BuiltEngine
from optc.compiling.recipes.recipe import Recipe
from optc.ir.pipeline.phase import Effect
from optc.runtime.executable.shared_kv import can_share


def means_the_same(target: Recipe, draft: Recipe) -> bool:
    """True if each layer of a draft that ``draft`` makes of the model has the keys and values that
    it has where ``target`` is run, but for rounding: no pass of either moves them to other
    channels, scales or layers, and both turn them alike."""
    both = [recipe.pipeline for recipe in (target, draft)]
    if any(one.has(Effect.MOVES_KV) for one in both):
        return False
    mine, other = ([p.spec() for p in one.passes if p.has(Effect.TURNS_KV)] for one in both)
    return mine == other


def sharing(drafts: Sequence[BuiltEngine], targets: Sequence[BuiltEngine]) -> list[BuiltEngine]:
    """The engines of a draft that has the first layers of the target, or all; those that can use
    the pools of their target's engine say so."""
    return [_shared(draft, target) for draft, target in zip(drafts, targets, strict=True)]


def _shared(draft: BuiltEngine, target: BuiltEngine) -> BuiltEngine:
    spec = draft.entry.spec
    spec = structs.replace(spec, shared_kv=tuple(range(len(spec.layers))))
    if not can_share(spec, target.entry.spec):
        return draft
    entry = structs.replace(draft.entry, interface=spec)
    build = replace(draft.build, spec=spec)
    return replace(draft, entry=entry, build=build)
