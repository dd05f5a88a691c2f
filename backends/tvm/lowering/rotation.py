"""Blocks in which kernels rotate rows and heads (`optc.runtime.executable.block_hadamard`)."""

from __future__ import annotations

from optc.runtime.executable.block_hadamard import BLOCKS


def block_problem(block: int, channels: int) -> str:
    """Empty if kernels rotate ``channels`` in blocks of ``block``, else the reason."""
    if block in BLOCKS and block <= channels:
        return ""
    return f"no kernel rotates {channels} channels in Hadamard blocks of {block}"


def head_problem(block: int, channels: int) -> str:
    """As `block_problem`, for heads, within which blocks lie; 0 leaves them as they are."""
    if block == 0:
        return ""
    if channels % block:
        return f"Hadamard blocks of {block} do not divide heads of {channels} channels"
    return block_problem(block, channels)
