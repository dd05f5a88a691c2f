"""Values that a schema lets one choose."""

from __future__ import annotations

from typing import Any

import pytest

from optc.proof.conversations.schema_values import MOST_VALUES, choices, with_value

UNIT = {"enum": ["c", "f"]}


@pytest.mark.parametrize(
    ("schema", "value", "found"),
    [
        ({"properties": {"u": UNIT, "x": {}}}, {"u": "c", "x": 1}, [("u", ("f",))]),
        ({"properties": {"on": {"type": "boolean"}}}, {"on": True}, [("on", (False,))]),
        (
            {"properties": {"a": {"items": {"properties": {"u": UNIT}}}}},
            {"a": [{"u": "c"}, {"u": "f"}]},
            [("a[0].u", ("f",)), ("a[1].u", ("c",))],
        ),
        (
            {"prefixItems": [UNIT], "items": {"enum": [1, 2]}},
            ["f", 1],
            [("[0]", ("c",)), ("[1]", (2,))],
        ),
        ({"enum": [1, True, None]}, 1, [("", (True, None))]),
        ({"properties": {"u": {"enum": ["c"]}}}, {"u": "c"}, []),
        ({"properties": {"u": UNIT}}, {"v": "c"}, []),
        ({"properties": [], "items": 3}, {"u": "c"}, []),
        ({"enum": [{"a": 1}, "c"]}, "d", [("", ("c",))]),
    ],
)
def test_choices(schema: dict[str, Any], value: object, found: list[Any]) -> None:
    assert [(one.name, one.others) for one in choices(schema, value)] == found


def test_there_are_not_too_many() -> None:
    (one,) = choices({"enum": list(range(100))}, 0)
    assert len(one.others) == MOST_VALUES - 1


def test_another_value_leaves_the_first_as_it_is() -> None:
    whole = {"a": [{"u": "c"}, 1]}
    assert with_value(whole, ("a", 0, "u"), "f") == {"a": [{"u": "f"}, 1]}
    assert whole == {"a": [{"u": "c"}, 1]}
    assert with_value(whole, (), 3) == 3
