from __future__ import annotations

from dataclasses import dataclass

import pytest

from optc.runtime.executable.kv_layout import KVLayout, block_size_for


@dataclass(frozen=True)
class Spec:
    kv_layout: KVLayout
    block_multiple: int


@pytest.mark.parametrize(
    ("multiple", "about", "size"),
    [(1, 32, 32), (16, 32, 32), (16, 47, 32), (24, 32, 24), (64, 32, 64), (1, 0, 1)],
)
def test_pages_have_about_so_many_tokens_in_multiples(multiple: int, about: int, size: int) -> None:
    assert block_size_for(Spec("paged", multiple), longest=1000, about=about) == size


def test_a_slot_holds_the_longest_sequence_whatever_is_asked_for() -> None:
    assert block_size_for(Spec("slots", 16), longest=1000, about=32) == 1000
