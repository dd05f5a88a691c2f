"""What stands within another expression is paid for as what stands alone."""

from __future__ import annotations

import pytest

from optc.runtime.text.template_budget import WORK, budget, current
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


def test_keys_are_written_in_their_order_unless_they_are_to_be_sorted() -> None:
    written = "{{ {'b': 1, 'a': [2]} | tojson(%s) }}"
    for arguments, text in (
        ("", '{"b": 1, "a": [2]}'),
        ("sort_keys=true", '{"a": [2], "b": 1}'),
        ("separators=(',', ':')", '{"b":1,"a":[2]}'),
    ):
        with budget():
            assert BoundedEnvironment().from_string(written % arguments).render() == text
