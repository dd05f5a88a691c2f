"""Chat templates, and the messages that they render."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from optc.errors import RequestError
from tests.fuzz.edits import edit_json, edit_text
from tests.fuzz.form import FileFormat, Materials

_TEMPLATE, _MESSAGES = "template.jinja", "messages.json"
TEMPLATES = (
    """{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
""",
    """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
{%- set system = messages[0]['content'] | trim %}
{%- set messages = messages[1:] %}
{%- else %}{%- set system = "" %}{%- endif %}
{%- if tools is not none %}{% for t in tools %}{{ t | tojson(indent=4) }}{% endfor %}{% endif %}
{%- for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must alternate') }}
{%- endif %}
{{- '<s>' ~ message.role ~ ': ' ~ message.content | trim ~ eos_token }}
{%- endfor %}
""",
    """{%- macro say(m) -%}
[{{ m.role | upper }}] {{ m.content | replace('a', 'b') }}{%- endmacro -%}
{% set ns = namespace(n=0) %}
{% for m in messages if m.role in ['user', 'assistant'] %}
{% set ns.n = ns.n + 1 %}{% if ns.n > 9 %}{% break %}{% endif %}
{{ say(m) }}{{ strftime_now('%Y') if loop.first }}
{% endfor %}
""",
)
#: Pieces of templates: what runs long, takes memory, leaves the sandbox or fails.
WORDS = [
    *r"""{{ 'a' * 10**10 }}
{{ 'a'.zfill(10**10) }}
{{ 10**10**8 }}
{{ 'a' * 10**9 }}
{{ '%999999999d' % 1 }}
{{ '{:999999999}'.format(1) }}
{{ 'a'.center(10**10) }}
{{ 'a'.ljust(2**40) }}
{{ range(10**9) | list }}
{{ range(99999) | list | tojson }}
{{ 'a' | center(10**10) }}
{{ [0] * 10**10 }}
{{ 2 ** 2 ** 40 }}
{{ 1 << 10**10 }}
{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}x
{% for a in range(99999) %}{% for b in range(99999) %}{{ 'x' }}{% endfor %}{% endfor %}
{% set x = 'a' %}{% for a in range(99) %}{% set x = x ~ x %}{% endfor %}
{% set ns = namespace(x='a') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}
{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}
{% for a in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ '%c' % -1 }}
{{ 'a' | wordwrap(0) }}
{{ [] | first }}
{{ ''.__class__ }}
{{ messages.append(1) }}
{{ cycler() }}
{{ lipsum(999999) }}
{{ '\ud800' }}
{{ x.y.z }}
{{ messages | tojson }}
{{ 'a' | int(base=99) }}
{{ 'a'.format_map(1) }}
{{ [1, 'a'] | sort }}
{{ 'a' | indent(10**10) }}
{{ 1 | abs
{{ messages | map(attribute='x') | list }}
{{ [] | random }}
{{ {} | dictsort(by='x') }}
{% include 'x' %}
{% import 'x' as y %}
{% extends 'x' %}
{% block a %}
{% raw %}
{% set messages = 3 %}
{% if %}
{% endif %}
{% endfor %}
{% else %}
{% break %}
{{ strftime_now(3) }}
{{ raise_exception() }}
{{ self }}
{{ loop }}
{{ namespace(1)
{{ 'a' | batch(0) | list }}
{{ 'abc' | slice(0) | list }}
{{ 'a' | round }}
{#
#}
{{ '%s' | format(1, 2) }}
{{ 'a'.encode('x') }}
{{ dict(a=1, **{'b': 2}) }}
{{ 1 in 1 }}
{{ 'a' < 1 }}
{{ none + 1 }}
{{ 'x' | urlize(1) }}
{{ 9 | filesizeformat
| trim
| upper
| tojson
| length
| list
| join
| sum
| groupby('a')""".splitlines(),
    "((" * 2000,
]
_CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi, where is Köln?"},
    {"role": "assistant", "content": "In Germany.", "tool_calls": [{"name": "f", "arguments": {}}]},
    {"role": "user", "content": [{"type": "text", "text": "Thanks"}]},
]


class Chat(FileFormat):
    """`Tokenizer.encode_chat`, which must refuse by a `RequestError` and nothing else."""

    name = "chat"

    def prepare(self, materials: Materials) -> None:
        super().prepare(materials)
        import jinja2.sandbox  # noqa: F401 - imported once, before workers are forked

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        messages = [_CONVERSATION, _CONVERSATION[1:3], _CONVERSATION[1:2]]
        return [
            {_TEMPLATE: template.encode(), _MESSAGES: json.dumps(conversation).encode()}
            for template in TEMPLATES
            for conversation in messages
        ]

    def open(self, folder: Path) -> None:
        super().open(folder)
        from tests.runtime.support.texts import byte_level

        self.backend = byte_level()

    def targets(self, files: object) -> list[str]:
        return [_TEMPLATE, _TEMPLATE, _TEMPLATE, _MESSAGES]

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        return edit_json(random, data) if name == _MESSAGES else edit_text(random, data, WORDS)

    def check(self, folder: Path) -> None:
        from optc.runtime.text.tokenizer import Tokenizer

        template = (folder / _TEMPLATE).read_bytes().decode("utf-8", "surrogateescape")
        try:
            messages = json.loads((folder / _MESSAGES).read_bytes())
        except (ValueError, RecursionError) as error:  # Python's own reader, not optc's
            raise RequestError(str(error)[:80], where="messages") from error
        special = {"bos_token": "<s>", "eos_token": "</s>"}
        tokenizer = Tokenizer(self.backend, chat_template=template, special_tokens=special)
        ids = tokenizer.encode_chat(messages)
        tokenizer.decode(ids)
