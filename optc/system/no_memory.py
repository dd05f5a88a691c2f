"""Memory that the system does not give: one message, however a package says so."""

from __future__ import annotations

import errno

from optc.errors import UnavailableError
from optc.system.available import available_memory

#: What packages in C++ and Rust say, and Python of a thread without room for its stack.
_SAID = ("bad_alloc", "bad allocation", "out of memory", "cannot allocate memory", "new thread")


def no_memory(error: BaseException) -> bool:
    """True if an error, or what it came from, is that memory ran out."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        if isinstance(found, MemoryError):
            return True
        if isinstance(found, OSError) and found.errno == errno.ENOMEM:
            return True
        if isinstance(found, RuntimeError) and any(s in str(found).lower() for s in _SAID):
            return True
        seen.add(id(found))
        found = found.__cause__ or found.__context__
    return False


def memory_error() -> UnavailableError:
    """The error that says so, and how much there is."""
    left = available_memory() >> 20
    return UnavailableError(
        f"the memory does not suffice: the system gives no more ({left} MiB are left)",
        where="memory",
        hint="raise the limit of the process or its control group (ulimit -v), or ask for less: "
        "--max-ram for a compile, --kv-memory and --threads for a run",
    )
