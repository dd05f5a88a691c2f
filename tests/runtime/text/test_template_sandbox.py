"""What stands within another expression is paid for as what stands alone."""

from __future__ import annotations

import pytest
from jinja2.exceptions import SecurityError

from optc.runtime.text.template_budget import LONGEST_TEXT, WORK, budget, current
from optc.runtime.text.template_sandbox import BoundedEnvironment

LONG = "a" * (1 << 20)
#: Units of two such texts: one for every 512 characters.
COMPARED = 2 * (len(LONG) >> 9)


def spent(source: str) -> int:
    """Units of work of a template that has a long text ``t``."""
    with budget():
        BoundedEnvironment().from_string(source).render(t=LONG)
        return WORK - current().work


@pytest.mark.parametrize(
    "source",
    [
        "{{ t == t }}",
        "{{ (t == t) ~ '' }}",
        "{{ '' ~ ('' ~ (t == t)) }}",
        "{{ (t == t) == true }}",
        "{{ {(t == t): 1} | length }}",
        "{{ [t == t] | length }}",
        "{% for i in [1] %}{% if t == t %}{% endif %}{% endfor %}",
        "{% for i in [1] %}{% for j in [1] %}{{ t == t }}{% endfor %}{% endfor %}",
        "{% for i in [1] if t == t %}{% endfor %}",
        "{% macro m() %}{{ t == t }}{% endmacro %}{{ m() }}",
    ],
)
def test_a_comparison_is_paid_for_wherever_it_stands(source: str) -> None:
    assert COMPARED <= spent(source) < COMPARED + 500


def test_a_turn_of_a_loop_is_paid_for_wherever_it_stands() -> None:
    inner = "{% for j in range(50) %}{% endfor %}"
    once, often = (
        spent(f"{{% for i in range({turns}) %}}{inner}{{% endfor %}}") for turns in (1, 51)
    )
    assert often - once > 50 * 50 * 8
    assert spent("{{ '' ~ '' }}") < 200


@pytest.mark.parametrize(
    "body",
    [
        "{% continue %}",
        "{% continue %}{{ j }}",
        "{% if true %}{% continue %}{% endif %}",
        "{{ j }}{% continue %}",
        "{% set x = j %}",
        "",
    ],
)
@pytest.mark.parametrize("test", ["", " if false", " if true"])
def test_a_turn_that_is_left_early_is_paid_for(body: str, test: str) -> None:
    of = [
        spent(f"{{% set l = range(99) | list %}}{{% for j in {turns}{test} %}}{body}{{% endfor %}}")
        for turns in ("[]", "l")
    ]
    assert of[1] - of[0] > 99 * 8


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("{% set x = t[1:] %}", 1),
        ("{% set x = [t][0] %}", 0),  # is there already
        ("{% set x = {}[t] %}", 1),
        ("{% set x = [t, t][:] %}", 0),
        ("{% set x = t[1:][1:] %}", 2),
    ],
)
def test_a_part_is_paid_for_where_it_is_made(source: str, texts: int) -> None:
    assert texts * (len(LONG) >> 9) <= spent(source) + 2 < texts * (len(LONG) >> 9) + 200


class Said(str):
    """A text that is said to be too long to be made."""

    def __len__(self) -> int:
        return LONGEST_TEXT + 1

    def __str__(self) -> str:
        return self


def test_pieces_are_counted_before_they_are_joined() -> None:
    with budget(), pytest.raises(SecurityError, match="a text or list of more than"):
        BoundedEnvironment.concat(iter([Said("a")]))
    for source in (
        "{% set x = '' ~ t %}",
        "{% set x = [1, 2] | join(t) %}",
        "{% set x = [1, 2] | map('string') | join(t) %}",  # made as it is read
    ):
        with budget(), pytest.raises(SecurityError, match="a text or list of more than"):
            BoundedEnvironment().from_string(source).render(t=Said("a"))
    with budget():
        assert BoundedEnvironment.concat(iter(["a", "", "b"])) == "ab"


def test_keys_are_written_in_their_order_unless_they_are_to_be_sorted() -> None:
    written = "{{ {'b': 1, 'a': [2]} | tojson(%s) }}"
    for arguments, text in (
        ("", '{"b": 1, "a": [2]}'),
        ("sort_keys=true", '{"a": [2], "b": 1}'),
        ("separators=(',', ':')", '{"b":1,"a":[2]}'),
    ):
        with budget():
            assert BoundedEnvironment().from_string(written % arguments).render() == text
