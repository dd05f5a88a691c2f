"""Chat templates: real ones work, and no template takes much time or memory."""

from __future__ import annotations

from typing import Any

import pytest

from optc.errors import RequestError
from optc.runtime.text import chat_template, template_budget
from optc.runtime.text.chat_template import render_template

#: What templates of models do, all of it at once.
REAL = """
{%- if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}
{%- set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}
{%- macro tool(one, indent=2) %}{{ one.name ~ ': ' ~ (one | tojson(indent=indent)) }}{% endmacro %}
{%- set ns = namespace(index=0, text='') %}
{{- bos_token + system }}
{%- for one in tools or [] %}{{ tool(one) }}{% endfor %}
{%- for message in messages if message.content is string %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must alternate') }}{% endif %}
{%- set ns.index = ns.index + 1 %}{% set ns.text = ns.text ~ message.content.split('|')[-1] %}
{{- '<' + message.role + '>' + message.content.strip().replace('\n', ' ') + '\n' }}
{%- if loop.last %}{{ '%02d' | format(ns.index) }}{{ '-' * 3 }}{% endif %}
{%- endfor %}
{%- for name, value in {'b': 1, 'a': [2.5, none, true]} | dictsort %}{{ name }}={{ value }};
{%- endfor %}
{{- ns.text | upper | replace('X', 'y') }}{{ [3, 1] | sort | map('string') | join(',') }}
{{- messages | selectattr('role', 'equalto', 'user') | list | length }}
{%- if 'x' in ns.text and not missing %}{{ missing | default('none') }}{% endif %}
{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}
"""
MESSAGES = [
    {"role": "system", "content": " be brief "},
    {"role": "user", "content": "a\nb"},
    {"role": "assistant", "content": "c|x"},
]


def test_what_real_templates_do() -> None:
    variables: dict[str, Any] = {"bos_token": "<s>", "add_generation_prompt": True}
    tools = [{"name": "é"}]
    assert render_template(REAL, {"messages": MESSAGES, "tools": tools, **variables}) == (
        '<s>be briefé: {\n  "name": "é"\n}<user>a b\n<assistant>c|x\n02---'
        "a=[2.5, None, True];b=1;A\nBy1,31none<assistant>"
    )


def test_a_long_conversation_takes_an_eighth_of_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = [{"role": r, "content": "word " * 200} for r in ("user", "assistant")] * 200
    monkeypatch.setattr(template_budget, "WORK", template_budget.WORK // 8)
    assert len(render_template(REAL, {"messages": turns, "bos_token": ""})) > 400_000


def doubled(start: str, expression: str) -> str:
    """A template that makes something larger from ``ns.x`` 99 times."""
    step = f"{{% set ns.x = {expression} %}}"
    return f"{{% set ns = namespace(x={start}) %}}{{% for i in range(99) %}}{step}{{% endfor %}}"


TOO_MUCH = [
    "{{ 'a'.zfill(2000000000) }}",
    "{{ 'a'.ljust(2000000000) }}{{ 'a'.center(20000) }}",
    "{{ ('\\t' * 9999).expandtabs(4000) }}",
    "{{ 10 ** (10**8) }}",
    "{{ 9 ** -99999 }}",
    "{{ 'a' * 10**9 }}",
    "{{ 10**9 * [1] }}",
    doubled("9", "ns.x * ns.x"),
    doubled("'aa'", "ns.x ~ ns.x"),
    doubled("'aa'", "ns.x + ns.x"),
    doubled("[1]", "[ns.x, ns.x]") + "{{ ns.x }}",
    doubled("[1]", "[ns.x, ns.x]") + "{{ ns.x == ns.x }}",
    doubled("(1,)", "(ns.x, ns.x)") + "{{ {ns.x: 1} }}",
    doubled("[1]", "[ns.x, ns.x]") + "{{ ns.x | tojson }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) recursive %}{{ loop(range(99999)) }}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}",
    "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% set x = 'a' * 9999 %}{{ (x * 1000).replace('a', x) }}",
    "{% set x = 'a' * 9999 %}{{ (x * 1000) | replace('a', x) }}",
    "{% set x = 'a' * 9999 %}{{ x.join(x * 100) }}",
    "{% set x = 'a' * 9999 %}{{ range(99999) | map('string') | join(x) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{{ [1] | batch(1000000000, 'x') | list }}",
    "{{ [1] | slice(1000000000) | list }}",
    "{{ 5 | round(-1000000000) }}",
    "{{ 'a\\nb' | indent(1000000000) }}",
    "{{ [[[1]]] | tojson(indent=1000000000) }}",
    "{{ 'a' | center(1000000000) }}",
    "{{ [[1], [2]] | sum(start=[]) }}",
    "{{ lipsum(1000000) }}",
    "{{ ('<!--' * 2000) | striptags }}",
    "{% for i in range(99999) %}" + "a" * 9999 + "{% endfor %}",
    "{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}",
    "{% macro f() %}{{ 'a' * 9999999 }}{% endmacro %}"
    "{% for i in range(99999) %}{% set x = f() %}{% endfor %}",
]


REASONS = (
    "the chat template fails: (it takes too many steps|it makes too much text|a sum of lists"
    "|a text or list of more than 16,777,216 |an integer of too many digits|[a-z]+ of -?[0-9,]+$"
    "|a format with a width of its own|maximum recursion depth|'lipsum' is undefined|a filter for)"
)


@pytest.mark.parametrize("source", TOO_MUCH)
def test_what_would_take_all_time_or_memory_is_refused(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_budget, "WORK", template_budget.WORK // 64)
    with pytest.raises(RequestError, match=REASONS) as caught:
        render_template(source, {"messages": MESSAGES})
    assert caught.value.where == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 / 0 }}",
        "{{ range(10**9) }}",
        "{{ '%c' % -1 }}",
        "{{ [1][2].x.y }}",
        "{{ '\\ud800' }}",
        "{{ '\\ud83d' ~ '\\ude00' }}",
        "{% include 'x' %}",
        "{{ 9 | float(default=[1][3]) + 'a' }}",
        "{{ strftime_now(3) }}",
        "(" * 5 + "{{ " + "(" * 5000 + " }}",
    ],
)
def test_every_failure_is_a_request_error(source: str) -> None:
    with pytest.raises(RequestError, match=r"the chat template fails: ."):
        render_template(source, {})


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ (messages | attr('append'))(1) }}",
        "{{ '' | count('x') }}",
    ],
)
def test_the_sandbox_still_holds(source: str) -> None:
    with pytest.raises(RequestError, match="the chat template fails: "):
        render_template(source, {"messages": MESSAGES})


def test_formats_reach_no_internals() -> None:
    assert render_template("{{ '{0.__class__}'.format(1) }}", {}) == ""


def test_a_template_is_compiled_once() -> None:
    chat_template._compiled.cache_clear()
    for content in ("a", "b"):
        assert render_template("{{ x }}", {"x": content}) == content
    assert chat_template._compiled.cache_info().misses == 1


def test_a_source_that_is_too_long_is_not_compiled() -> None:
    with pytest.raises(RequestError, match="the chat template has 1048577 characters"):
        render_template(" " * ((1 << 20) + 1), {})


def test_blocks_leave_no_blanks_before_them() -> None:
    assert render_template("a\n  {% if true %}\nb{% endif %}", {}) == "a\nb"


def test_what_a_template_refuses_is_said_in_its_own_words() -> None:
    with pytest.raises(RequestError) as caught:
        render_template("{{ raise_exception('roles must alternate') }}", {})
    assert "roles must alternate" in str(caught.value)
    assert "fails" not in str(caught.value)
