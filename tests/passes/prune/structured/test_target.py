"""Targets: what texts state, what counts, and what is no target."""

from __future__ import annotations

from fractions import Fraction

import pytest

from optc.errors import InputError
from optc.passes.prune.structured.target import Amounts, Target

WHOLE = Amounts(1000, 4000, weight_bits=32000, read_bits=24000, kv_bytes=500)


@pytest.mark.parametrize(
    ("text", "kind", "most", "counted", "words"),
    [
        ("0.75x", "share", 750, 1000, "750 weights"),
        ("3.5K parameters", "parameters", 3500, 4000, "3,500 parameters"),
        ("0.0035M parameters", "parameters", 3500, 4000, "3,500 parameters"),
        ("3500 parameters", "parameters", 3500, 4000, "3,500 parameters"),
        ("3KB", "bytes", 3000, 4000, "0.003MB"),
        ("2000tok/s@0.006GB/s", "speed", 3000, 3500, "0.003MB read by a decode step"),
    ],
)
def test_a_text_states_what_may_be_left(
    text: str, kind: str, most: int, counted: int, words: str
) -> None:
    target = Target.read(text, "here")
    assert target.kind == kind
    assert target.most(WHOLE) == most
    assert target.counted(WHOLE) == Fraction(counted)
    assert target.text(target.most(WHOLE)) == words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.75", "'0.75' is no target (write 0.75x"),
        ("1x", "'1x' is no share between 0 and 1 (write 0.75x"),
        ("0x", "'0x' is no share between 0 and 1"),
        ("3.5bpw", "'3.5bpw': pruning takes no bits (write 0.75x"),
        ("40tok/s", "'40tok/s' does not say how fast the machine reads (write 40tok/s@50GB/s"),
        ("half", "'half' is no target (write 0.75x"),
    ],
)
def test_what_is_no_target_says_how_one_is_written(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Target.read(text, "pass prune-width")
    assert str(caught.value).startswith(f"pass prune-width: {message}")
