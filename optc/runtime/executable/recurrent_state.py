"""The place of a recurrence's state in a block of the KV pools."""

from __future__ import annotations

#: Slots of a block that a state may be spread over, the more, the fewer blocks a prompt needs.
_SLOTS = (128, 64, 32, 16)
#: Numbers of a slot in each pool come in multiples of so many; slots in tiles of 16.
_WIDTH, _TILE = 8, 16


def state_slots(key_dim: int, value_dim: int) -> int:
    """The first slots of a block that hold a head's state [Dk, Dv]; 0 if none can.

    Half of its rows lie in the pool of keys, the other half in that of values, an equal part in
    each slot and whole rows in each 16 slots. Blocks of an engine with such states are multiples of
    so many tokens.
    """
    for slots in _SLOTS:
        rows, width = key_dim * _TILE, key_dim * value_dim
        if rows % (2 * slots) == 0 and width % (2 * slots * _WIDTH) == 0:
            return slots
    return 0


def state_width(key_dim: int, value_dim: int) -> int:
    """The numbers of a head's state that each of those slots has in each pool; 0 without slots."""
    slots = state_slots(key_dim, value_dim)
    return key_dim * value_dim // (2 * slots) if slots else 0
