from __future__ import annotations

from optc.system.logs.named_once import NamedOnce


def test_a_name_is_mentioned_once_and_cut() -> None:
    named = NamedOnce()
    assert [named.first(name) for name in ("a", "b", "a", "x" * 65, "x" * 70)] == [
        *("a", "b", None, "x" * 64, None),
    ]
    assert len(named) == 3


def test_names_are_bounded_however_many_come() -> None:
    named = NamedOnce()
    said = [named.first(str(number)) for number in range(1000)]
    assert said == [*map(str, range(256)), *[None] * 744]
    assert len(named) == 256
