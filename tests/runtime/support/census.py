"""What an object reaches: how many entries its containers hold, and how many objects there are.

Both are counts, so that a test of what is kept depends neither on time nor on the allocator.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

#: They lead to the whole program.
_ENDS = (ModuleType, type, FrameType, CodeType, BuiltinFunctionType)
_CONTAINERS = (list, dict, set, deque, bytearray)


def entries(root: object, apart: tuple[type, ...] = ()) -> Counter[str]:
    """Entries of all containers that can be reached from ``root``, by the class of what holds
    them; not through what is ``apart``.

    It asks the objects themselves, for Python's collector knows no dictionary of numbers.
    """
    gc.collect()
    seen: dict[int, Any] = {}
    left: list[tuple[Any, str]] = [(root, "")]
    found: Counter[str] = Counter()
    while left:
        one, holder = left.pop()
        if id(one) in seen or isinstance(one, (*_ENDS, *apart)):
            continue
        seen[id(one)] = one
        if isinstance(one, _CONTAINERS):
            found[holder] += len(one)
        else:
            holder = type(one).__qualname__
        if isinstance(one, FunctionType):  # not its globals
            inner: list[Any] = [*(one.__closure__ or ()), *(one.__defaults__ or ())]
        else:
            inner = gc.get_referents(one)
        left += [(other, holder) for other in inner]
    return found


def living(prefix: str = "optc.") -> Counter[str]:
    """How many objects of each class there are whose module's name begins with ``prefix``."""
    gc.collect()
    kinds = map(type, gc.get_objects())
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in kinds
        if str(kind.__module__).startswith(prefix)
    )
