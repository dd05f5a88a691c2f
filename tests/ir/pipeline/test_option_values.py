"""Values of options: typed ones and texts of them, lists and none included."""

from __future__ import annotations

from typing import Any

import pytest

from optc.ir.pipeline.option_values import kind_text, read_value, shortened, value_text

KINDS: list[tuple[Any, object, str]] = [
    (int, 3, "3"),
    (int, -3, "-3"),
    (float, 0.5, "0.5"),
    (bool, True, "true"),
    (bool, False, "false"),
    (str, "a,b", "a,b"),
    (str, "3", "3"),
    (int | None, None, "none"),
    (int | None, 4, "4"),
    (tuple[int, ...], (1, 2), "[1,2]"),
    (tuple[str, ...], (), "[]"),
    (tuple[float, ...] | None, (0.5,), "[0.5]"),
]


@pytest.mark.parametrize(("kind", "value", "text"), KINDS)
def test_a_value_is_read_from_its_type_and_its_text(kind: Any, value: object, text: str) -> None:
    assert value_text(value) == text
    for given in (value, text):
        read = read_value(kind, given)
        assert (read, type(read)) == (value, type(value))


def test_lists_of_yaml_and_texts_without_brackets_are_tuples() -> None:
    assert read_value(tuple[int, ...], [1, 2]) == (1, 2)
    assert read_value(tuple[int, ...], "1, 2") == (1, 2)
    assert read_value(float, 2) == 2.0
    assert type(read_value(float, 2)) is float
    assert read_value(bool, "TRUE") is True
    assert read_value(int | None, "None") is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "x"),
        (int, True),
        (int, 2.0),
        (int, None),
        (int, [1]),
        (float, "many"),
        (float, True),
        (bool, 1),
        (bool, "1"),
        (str, 3),
        (str, None),
        (str, "\udcff"),
        (tuple[int, ...], 3),
        (tuple[int, ...], [1, "a"]),
        (tuple[int, ...], "1,,2"),
        (int | None, "nothing"),
    ],
)
def test_what_is_of_another_type_is_refused(kind: Any, value: object) -> None:
    with pytest.raises((KeyError, ValueError)):
        read_value(kind, value)


def test_types_have_names_for_messages() -> None:
    assert kind_text(int) == "int"
    assert kind_text(int | None) == "int or none"
    assert kind_text(tuple[str, ...]) == "list of str"


def test_values_of_any_size_are_shown_in_few_words() -> None:
    nested: list[object] = []
    for _ in range(50):
        nested = [nested] * 9
    for value in (nested, "x" * 10**6, 10**5000, {"a": "y" * 10**6}):
        assert len(shortened(value)) <= 80
