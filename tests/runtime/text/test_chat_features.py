"""All that transformers' environment offers to chat templates, with its rendering as the oracle."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from jinja2 import TemplateError
from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

from optc.errors import RequestError
from optc.runtime.text import template_sandbox
from optc.runtime.text.chat_template import render_template
from optc.runtime.text.named_templates import merged_template

TOOL = {"type": "function", "function": {"name": "é<a>", "parameters": {"z": 1, "b": [None, 2.5]}}}
USER = {"role": "user", "content": "  what's <this> & «that»?\n"}
CHATS: dict[str, list[dict[str, Any]]] = {
    "user": [USER],
    "system": [{"role": "system", "content": "be ünïque"}, USER],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "a\n"}]}],
    "turns": [USER, {"role": "assistant", "content": "a\n  b"}, USER],
    "call": [USER, {"role": "assistant", "tool_calls": [TOOL]}, {"role": "tool", "content": "7"}],
}
ARGUMENTS = {
    "ensure_ascii": ("true", "false"),
    "indent": ("2", "none", "'\t'"),
    "separators": ("(',', ':')", "none"),
    "sort_keys": ("true", "false"),
}
_BODY = "{% for m in messages %}%s{% endfor %}"
FEATURES = [
    *(
        "{{ {'z': 'é<', 'a': [1, none]} | tojson(%s) }}{{ tools | tojson(%s) }}" % ((text,) * 2)
        for text in (
            ", ".join(f"{name}={value}" for name, value in zip(ARGUMENTS, values, strict=True))
            for values in itertools.product(*ARGUMENTS.values())
        )
    ),
    "{{ messages | tojson }}{{ messages | tojson(true, 1) }}{{ tools | tojson(indent=4) }}",
    _BODY.replace("%s", "{% generation %}{{ m.content }}\n{% endgeneration %}\n"),
    "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{%- endgeneration -%} {{ x }}",
    _BODY.replace("%s", "{{ loop.index }}{%- generation %} {{ loop.last }} {% endgeneration -%}"),
    _BODY.replace("%s", "{% if loop.index == 2 %}{% continue %}{% endif %}{{ m.role }}"),
    _BODY.replace("%s", "{{ m.role }}{% if loop.index == 2 %}{% break %}{% endif %}"),
    "{{ strftime_now('%Y-%m-%d') }}{{ strftime_now is defined }}",
    "{% if messages | length == 2 %}{{ raise_exception('no ' ~ messages[0].role) }}{% endif %}x",
    "{% if tools %}T{% endif %}{% if tools is none %}N{% endif %}{% if documents is none %}D"
    "{% endif %}{{ add_generation_prompt }}{{ bos_token }}{{ pad_token is defined }}",
    "{% macro a(b, c=1) -%} {{ b }}{{ c }}{{ caller() if caller }} {%- endmacro %}{{ a(1) }}"
    "{% call a(2, c=3) %}inner{% endcall %}",
    "{% set ns = namespace(i=0, t='') %}{% for m in messages %}{% set ns.i = ns.i + 1 %}"
    "{% set ns.t = ns.t ~ m.role %}{% endfor %}{{ ns.i }}{{ ns.t }}",
    "{{ dict(a=1, b=[2]) }}{{ dict(messages[0]).role }}{{ range(3) | list }}",
    "{% set j = joiner(', ') %}{% set c = cycler('a', 'b') %}" + _BODY.replace("%s", "{{ j() }}x"),
    "{% filter upper %}{{ messages[0].role }}{% endfilter %}{% with a = 1 %}{{ a }}{% endwith %}"
    "{% raw %}{{ x }}{% endraw %}{# none #}{% set y %}block{% endset %}{{ y }}",
    "{{ '<b>x</b> y' | striptags }}{{ 'see http://a.b' | urlize }}{{ {'a': 1} | xmlattr }}"
    "{{ 'a bc def' | wordwrap(3) }}{{ 'a bc' | wordcount }}{{ '<' | e }}{{ 'x' | safe }}",
    "  {% if true %}\n  a\n  {% endif %}\n  {%- if true -%}\n b {%+ if true %} c\n{% endif %}"
    "{% endif %}\n\n",
    _BODY.replace("%s", "{{ m.get('content', '') }}{{ m.items() | list }}{{ 'role' in m }}"),
    _BODY.replace("%s", "{{ m['content'][0] }}{{ m.content[:3] }}{{ m.missing }}{{ m.content }}"),
    "{{ messages | map(attribute='role') | unique | join('|') }}{{ messages | groupby('role') }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{{ messages[0].content | string | trim | replace('t', 'T') | title | capitalize | indent }}",
    "{% for k, v in {'b': 1, 'a': 2} | dictsort %}{{ k }}{{ v }}{% else %}none{% endfor %}",
    "{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 3 }}{{ 1 < 2 < 3 }}{{ not true }}{{ 'a' if false }}|{{ none }}",
    "{{ nope.deeper }}",
    "{{ 'x' + 1 }}",
]


def theirs(template: str, messages: list[dict[str, Any]], **variables: Any) -> str | None:
    """The rendering of transformers; None where the template fails."""
    try:
        (text,), _ = render_jinja_template([messages], chat_template=template, **variables)
    except (TemplateError, TypeError):
        return None
    assert isinstance(text, str)
    return text


def ours(template: str, messages: list[dict[str, Any]], **variables: Any) -> str | None:
    given = {"tools": None, "documents": None, **variables, "messages": messages}
    try:
        return render_template(template, given)
    except RequestError:
        return None


@pytest.mark.parametrize("template", FEATURES)
def test_a_feature_renders_as_with_transformers(template: str) -> None:
    for name, chat in CHATS.items():
        for tools, prompt in itertools.product((None, [], [TOOL]), (True, False)):
            terms = {"tools": tools, "add_generation_prompt": prompt, "bos_token": "<s>"}
            assert ours(template, chat, **terms) == theirs(template, chat, **terms), (name, terms)


def test_nothing_of_their_environment_is_missing() -> None:
    there = _compile_jinja_template("").environment
    here = template_sandbox.BoundedEnvironment()
    for mine, wanted in ((here.filters, there.filters), (here.tests, there.tests)):
        assert wanted.keys() <= mine.keys()
    assert there.globals.keys() - here.globals.keys() == {"lipsum"}, "which is random"
    tags = {tag for one in there.extensions.values() for tag in one.tags}
    assert tags <= {tag for one in here.extensions.values() for tag in one.tags}


@pytest.mark.parametrize("text", ["striptags", "urlize", "wordwrap"])
def test_slow_filters_take_short_texts(text: str) -> None:
    source = "{{ ('a' * COUNT) | " + text + " }}"
    assert ours(source.replace("COUNT", "4000"), [])
    assert ours(source.replace("COUNT", "5000"), []) is None


ENDS = (
    "",
    "\n",
    "\n\n",
    "  ",
    "\n  ",
    "{% if true %}\n",
    " {%- if true -%} ",
    "{# #}\n",
    "{{ 1 }}",
)
CLOSED = {"{% if true %}\n": "{% endif %}\n", " {%- if true -%} ": "\n {%- endif -%}\n"}


@pytest.mark.parametrize("begin", ENDS)
@pytest.mark.parametrize("end", ["", "\n", "\n\n", "  ", "\n  ", "{{ 1 }}", "{# #}\n"])
def test_a_template_for_tools_is_taken_as_transformers_does(begin: str, end: str) -> None:
    named = [
        {"name": name, "template": f"{begin}{name}{{{{ tools }}}}{CLOSED.get(begin, '')}{end}"}
        for name in ("default", "tool_use", "rag")
    ]
    merged, left_out = merged_template(named)
    assert left_out == ("rag",)
    assert merged_template({one["name"]: one["template"] for one in named}).source == merged
    for tools in (None, [], [TOOL]):
        chosen = named[0 if tools is None else 1]["template"]
        assert ours(merged, [USER], tools=tools) == theirs(chosen, [USER], tools=tools)


def test_templates_of_other_forms() -> None:
    assert merged_template("x") == ("x", ())
    for nothing in (None, 3, [], [3], {}, [{"name": "default", "template": 3}]):
        assert merged_template(nothing) == ("", ())
    alone = merged_template({"tool_use": "T", "other": "O"})
    assert alone.left_out == ("other",)
    assert ours(alone.source, [], tools=[]) == "T"
    assert ours(alone.source, []) is None
