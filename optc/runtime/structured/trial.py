"""`tried`: a grammar is compiled in a child process first, within limits of time and memory.

llguidance bounds most of its work, but not all: a schema of two integers that are multiples of
primes takes hours and gigabytes, and no thread can be interrupted in it. What ends within the
limits there is compiled here. As a module it is that child.
"""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from optc.errors import RequestError
from optc.runtime.structured.complaints import reason
from optc.runtime.structured.structure import Structure
from optc.system.logs.logger import logger
from optc.system.processes.child_process import child_command, child_environment


class Limits(NamedTuple):
    """Limits of a compile.

    Attributes:
        seconds: Of a processor; on a clock eight times as many, for compiles share processors.
        bytes: Of memory.
    """

    seconds: int
    bytes: int


LIMITS = Limits(5, 256 << 20)
#: Texts that the child begins, and tokens of each: a grammar whose limits are met later than that
#: ends in the midst of a text.
_WALKS, _STEPS = 3, 48
_PAGE = mmap.PAGESIZE

_LOG = logger(__name__)


def tried(structure: Structure, grammar: str) -> int:
    """Compile ``grammar`` in a child process; returns the bytes that it took.

    Raises:
        RequestError: It takes too long or too much memory, or soon cannot go on.
    """
    limits = LIMITS
    command = [*child_command(__name__), *map(str, limits)]
    wait_s = 8 * limits.seconds
    try:
        ended = subprocess.run(
            command,
            input=grammar.encode(),
            capture_output=True,
            timeout=wait_s,
            check=False,
            env=child_environment(),
        )
    except subprocess.TimeoutExpired as error:
        raise _too_much(structure, f"within {wait_s} s") from error
    except OSError as error:  # a system that starts no processes; llguidance's own limits remain
        _LOG.warning("a grammar is compiled without a trial: %s", error)
        return 0
    if ended.returncode < 0 or b"memory" in ended.stderr.lower():
        allowed = f"within {limits.seconds} s and {limits.bytes >> 20} MiB"
        raise _too_much(structure, allowed)
    if ended.returncode:
        _LOG.warning("a grammar is compiled without a trial: %s", ended.stderr[-500:])
        return 0
    found: dict[str, Any] = json.loads(ended.stdout)
    if found["error"]:
        message = f"it cannot be followed to the end of a text: {reason(found['error'])}"
        raise RequestError(message, where=structure.kind, hint="simplify it")
    return int(found["bytes"])


def _too_much(structure: Structure, allowed: str) -> RequestError:
    return RequestError(f"it does not compile {allowed}", where=structure.kind, hint="simplify it")


def main() -> None:
    """Compile the grammar on stdin within the limits of the command line; prints its bytes, and
    how following it failed, as JSON."""
    from llguidance import LLMatcher, LLTokenizer

    grammar = sys.stdin.read()
    tokens = LLTokenizer("byte")
    _limit(Limits(*map(int, sys.argv[1:])))
    before = _resident()
    matcher = LLMatcher(tokens, grammar, log_level=0)
    matcher.compute_bitmask()
    error = ""
    if not matcher.is_error():  # else the compile says what is wrong, and where
        error = next(filter(None, (_walk(matcher.deep_copy(), walk) for walk in range(_WALKS))), "")
    print(json.dumps({"error": error, "bytes": max(0, _resident() - before)}))


def _walk(matcher: Any, walk: int) -> str:
    """Follow the grammar by tokens that differ from walk to walk; the limit that is met."""
    for step in range(_STEPS):
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        allowed = [token for token in range(mask.bit_length()) if mask >> token & 1]
        if matcher.is_error() or not allowed or matcher.is_stopped():
            break
        # The first, the last, one of the middle: letters, and what closes a text last.
        place = (0, len(allowed) - 1, (step * 7) % len(allowed))[walk]
        if not matcher.consume_token(allowed[place]):
            break
    error: str = matcher.get_error()
    return error if _LIMIT.intersection(error.lower().split()) else ""


#: Words of llguidance's messages about its limits.
_LIMIT = frozenset({"many", "max", "limit", "fuel"})


def _limit(limits: Limits) -> None:
    """Let the system end this process where it takes too much."""
    import resource  # where there is no such module, there are no such limits

    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + limits.seconds
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = _statm()
    if pages:
        most = pages[0] * _PAGE + limits.bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _resident() -> int:
    pages = _statm()
    return pages[1] * _PAGE if pages else 0


def _statm() -> list[int]:
    """Pages of this process, all and resident ones; empty where the system does not say."""
    try:
        return [int(count) for count in Path("/proc/self/statm").read_text().split()]
    except OSError:
        return []


if __name__ == "__main__":
    main()
