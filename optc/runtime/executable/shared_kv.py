"""The KV pools of a target that an engine that drafts can use."""

from __future__ import annotations

from optc.runtime.executable.executable import StepInterface


def can_share(draft: StepInterface, target: StepInterface) -> bool:
    """True if the keys and values of a draft can lie in the target's pools: the layers that
    ``draft.shared_kv`` names have pools of the same shapes, types and windows."""
    layers = draft.shared_kv
    if not layers or len(layers) != len(draft.layers) or max(layers) >= len(target.layers):
        return False
    if (draft.kv_layout, target.kv_layout) != ("paged", "paged"):
        return False
    return target.block_multiple % draft.block_multiple == 0 and _same_pools(draft, target)


def _same_pools(draft: StepInterface, target: StepInterface) -> bool:
    for group in draft.groups:
        others = [target.layers[draft.shared_kv[layer]] for layer in group.layers]
        if len({other.group for other in others}) != 1:
            return False
        if target.groups[others[0].group].window != group.window:
            return False
        mine = [draft.layers[layer] for layer in group.layers]
        if not all(own.alike(other) for own, other in zip(mine, others, strict=True)):
            return False
    return True


def shared_groups(draft: StepInterface, target: StepInterface) -> tuple[int, ...]:
    """By KV group of the draft, the target's group whose blocks it uses.

    Raises:
        ValueError: They cannot share (`can_share`).
    """
    if not can_share(draft, target):
        raise ValueError("draft and target cannot share keys and values")
    first = [group.layers[0] for group in draft.groups]
    return tuple(target.layers[draft.shared_kv[layer]].group for layer in first)
