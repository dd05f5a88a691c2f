"""`wanted`: how many replicas there should be."""

from __future__ import annotations

import math
from collections.abc import Collection

#: Share of a replica that should be used on average: the rest is for what comes until another one
#: has been started.
USED = 0.75


def wanted(loads: Collection[float]) -> int:
    """Replicas among which these loads are `USED` of each, at least one.

    Args:
        loads: Of the replicas that there are (`optc.serve.replicas.replica.Replica.load`).
    """
    return max(1, math.ceil(sum(loads) / USED - 1e-9))
