"""The memory for a whole float32 model beside the gates."""

from __future__ import annotations

#: Memory limit that is assumed where none is given, and what is left to everything else.
DEFAULT_RAM_BYTES = 3 * 10**9
RESERVED_BYTES = 12 * 10**8


def weights_room(max_ram_bytes: int) -> int:
    """Bytes that a whole model may take in float32 while gates are measured.

    Args:
        max_ram_bytes: Memory limit; 0 takes `DEFAULT_RAM_BYTES`.
    """
    return (max_ram_bytes or DEFAULT_RAM_BYTES) - RESERVED_BYTES
