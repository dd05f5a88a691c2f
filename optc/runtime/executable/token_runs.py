"""Copies of tokens between KV slots, as runs of memory."""

from __future__ import annotations

from collections.abc import Iterator

from optc.runtime.executable.executable import Int32


def token_runs(sources: Int32, targets: Int32, block_size: int) -> Iterator[tuple[int, int, int]]:
    """Runs of tokens that lie one after the other in both lists, in their order.

    Runs stay within a block, and within one block are no longer than the way that they move: what a
    run reads, it does not write.

    Args:
        sources: [n] tokens to copy; a token is ``block * block_size + place``.
        targets: [n] where to.
        block_size: Tokens that lie one after the other in memory.

    Yields:
        The first source and target, and how many.
    """
    pairs = list(zip(sources.tolist(), targets.tolist(), strict=True))
    start = 0
    for index in range(1, len(pairs) + 1):
        source, target = pairs[start]
        count = index - start
        if index < len(pairs) and pairs[index] == (source + count, target + count):
            inside = all((one + count) % block_size for one in (source, target))
            same = source // block_size == target // block_size
            if inside and not (same and count >= abs(source - target)):
                continue
        yield source, target, count
        start = index
