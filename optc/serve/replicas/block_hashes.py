"""`block_hashes`: the prefixes of a prompt by the names that caches and events have for them."""

from __future__ import annotations

from optc.runtime.executable.executable import Int32
from optc.runtime.kv_events.events import number_of
from optc.runtime.spill.spill import chain, root_digest


def block_hashes(salt: str, tokens: Int32, block_size: int) -> tuple[int, ...]:
    """The hash of each prefix of full blocks that a request may take from a cache, the shortest
    first. They are those of `optc.runtime.kv_events.events`.

    Args:
        salt: As of the prefix cache: an adapter's generation, a zero, and the request's own.
        tokens: [n] of the prompt. At least the last one is computed, so that a block which ends
            with it is left out.
        block_size: Tokens a block.
    """
    digest = root_digest(salt)
    found = []
    for end in range(block_size, len(tokens), block_size):
        digest = chain(digest, tokens[end - block_size : end].tobytes())
        found.append(number_of(digest))
    return tuple(found)
