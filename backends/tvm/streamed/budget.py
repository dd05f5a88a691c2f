"""The share of the weights that stays in memory."""

from __future__ import annotations

from collections.abc import Sequence

from optc.backends.tvm.weights.weights_file import Placed
from optc.errors import InputError
from optc.system.available import available_memory, resident_default
from optc.system.logs.logger import logger
from optc.system.units import byte_text

_LOG = logger(__name__)


def resident_bytes(asked: int | None, placed: Sequence[Placed]) -> int | None:
    """Bytes of weights that stay in memory; None are all of them, mapped as they are.

    Args:
        asked: How many by the user; None leaves it to the memory: all that fit, else half of what
            is left.
        placed: The weights.

    Raises:
        InputError: So much memory is not left.
    """
    whole = sum(one.end - one.offset for one in placed)
    if asked is None:
        found = resident_default(whole)
        if found is not None:
            _LOG.warning(
                "the weights have %s, more memory than is left: %s of them stay in memory, steps "
                "read the others from the disk (resident_memory)",
                *map(byte_text, (whole, found)),
            )
        return found
    if asked >= whole:
        return None
    left = available_memory()
    if asked > left:
        raise InputError(
            f"{byte_text(asked)} of weights cannot stay in memory: {byte_text(left)} are left here",
            where="resident_memory",
            hint="less, beside what keys and values need (kv_memory); the rest of the weights is "
            "read from the disk",
        )
    return asked
