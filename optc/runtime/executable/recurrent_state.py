"""The places of states in a block of the KV pools: of a recurrence along the tokens, and of a
convolution."""

from __future__ import annotations

#: Slots of a block that a state may be spread over, the more, the fewer blocks a prompt needs.
_SLOTS = (128, 64, 32, 16)
#: Numbers of a slot in each pool come in multiples of so many; slots in tiles of 16.
_WIDTH, _TILE = 8, 16
#: Slots of a block over which the rows that a convolution goes on from are spread, where no
#: recurrence wants more.
CONVOLUTION_SLOTS = 32


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


def row_stride(channels: int) -> int:
    """Numbers from one row of a convolution's state to the next in each pool, which has half of the
    channels: whole vectors of 16."""
    return -(-channels // (2 * _TILE)) * _TILE


def rows_width(channels: int, kernel: int, slots: int) -> int:
    """The numbers that each of so many ``slots`` has in each pool, to hold the ``kernel`` - 1 rows
    that a convolution goes on from."""
    return -(-row_stride(channels) * (kernel - 1) // (slots * _WIDTH)) * _WIDTH
