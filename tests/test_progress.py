"""Progress of work that is given nobody to tell."""

from __future__ import annotations

import pytest

from optc.progress import tell, telling


def test_what_is_told_reaches_the_innermost_listener_only() -> None:
    outer: list[tuple[str, int, int]] = []
    inner: list[tuple[str, int, int]] = []
    tell("nobody", 0, 1)
    with telling(lambda *what: outer.append(what)):
        with telling(lambda *what: inner.append(what)):
            tell("a", 1, 2)
        with pytest.raises(KeyError), telling(lambda *what: inner.append(what)):
            raise KeyError
        tell("b", 2, 2)
    tell("nobody", 1, 1)
    assert (outer, inner) == ([("b", 2, 2)], [("a", 1, 2)])
