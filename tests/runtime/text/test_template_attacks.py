"""Templates that want all time or memory end soon, and say why; honest ones do not notice."""

from __future__ import annotations

import threading

import pytest

from optc.errors import RequestError
from optc.runtime.text import template_budget
from optc.runtime.text.chat_template import render_template
from optc.runtime.text.template_budget import MADE_TEXT

#: A hang is not waited for longer than this; nothing else depends on it.
HANG_S = 30.0
#: A text of 16 million characters, by doubling, and one of a million.
LONG = (
    "{% set ns = namespace(t='ab') %}"
    "{% for i in range(22) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}"
)
MIB = LONG.replace("range(22)", "range(19)")

ATTACKS = {
    "rsplit": MIB + "{{ ns.t.rsplit('a' * 500000 ~ 'c') | length }}" * 9,
    "rfind": MIB + "{{ ns.t.rfind('a' ~ 'ab' * 250000) }}" * 9,
    "rindex": MIB + "{{ ns.t.rindex('ab' * 250000) }}" * 9,
    "count": MIB + "{{ ns.t.count('ab' * 250000 ~ 'c') }}" * 9,
    "lstrip": MIB + "{{ ns.t.lstrip(ns.t.replace('ab', 'cd') ~ 'ab') }}" * 9,
    "strip": MIB + "{{ ns.t.strip(ns.t) }}" * 9,
    "startswith": MIB + "{% for i in range(99999) %}{{ ns.t.startswith(ns.t) }}{% endfor %}",
    "maketrans": "{{ ''.maketrans('a', 'b') }}",
    "fromkeys": "{{ {}.fromkeys(range(99999)) }}",
    "from_bytes": LONG + "{{ (1).from_bytes(ns.t.encode(), 'little') }}",
    "to_bytes": "{{ (1).to_bytes(4000, 'little') }}",
    "encode": LONG + "{{ ns.t.encode('utf-16') }}",
    "sort": "{% set ns = namespace(l=[{'a': 'x' * 4000}]) %}{% for i in range(14) %}"
    "{% set ns.l = ns.l + ns.l %}{% endfor %}{% for i in range(999) %}"
    "{{ ns.l | sort(attribute='a') | length }}{% endfor %}",
    "paths": "{% for i in range(9999) %}{{ range(99999) | map(attribute='a' ~ '.a' * 900) | list"
    " | length }}{% endfor %}",
    "unique": "{% for i in range(999) %}{{ range(99999) | unique | list | length }}{% endfor %}",
    "ranges": "{% for i in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
    "lists": "{% for i in range(99999) %}{{ range(99999) | list | length }}{% endfor %}",
    "views": "{% set d = dict(messages[0], **{}) %}{% for i in range(99999) %}"
    "{% for j in range(99) %}{{ d.values() | list | length }}{% endfor %}{% endfor %}",
    "memory": "{% set ns = namespace(l=[], k=[1]) %}{% for i in range(23) %}"
    "{% set ns.k = ns.k + ns.k %}{% endfor %}{% for i in range(99) %}"
    "{% set ns.l = [ns.l, ns.k + [i]] %}{% endfor %}",
    "wide text": LONG.replace("'ab'", "'🙂b'") + "{% for i in range(99) %}"
    "{% set ns.l = [ns.l, ns.t ~ i] %}{% endfor %}",
    "slices": LONG + "{% for i in range(9999) %}{% for j in range(9999) %}{% set x = ns.t[1:] %}"
    "{% endfor %}{% endfor %}",
    "parts of lists": "{% set ns = namespace(k=[1]) %}{% for i in range(16) %}"
    "{% set ns.k = ns.k + ns.k %}{% endfor %}{% for i in range(9999) %}"
    "{% for j in range(9999) %}{% set x = ns.k[i:] %}{% endfor %}{% endfor %}",
    "keys": "{% set k = dict(range(20000) | batch(2)).keys() %}{% for i in range(9999) %}"
    "{% for j in range(9999) %}{% set x = k - k %}{% endfor %}{% endfor %}",
    "formats": "{{ '%s' * 9999999 % (1,) }}",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_it_ends(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_budget, "WORK", template_budget.WORK >> 3)  # an eighth is enough
    ended: list[BaseException | None] = []

    def render() -> None:
        try:
            render_template(ATTACKS[name], {"messages": [{"role": "user", "content": "a"}]})
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=render, daemon=True)
    thread.start()
    thread.join(HANG_S)
    assert ended, "it takes all time"
    assert isinstance(ended[0], RequestError), ended
    assert "the chat template fails" in str(ended[0])


def test_what_templates_do_is_allowed() -> None:
    source = (
        "{% for m in messages %}{{ m.content.strip().split('</think>')[-1].lstrip('\\n') }}"
        "{{ m.get('role').upper() }}{{ m.items() | list | length }}"
        "{{ m['content'].rsplit('b', 1)[0] }}"
        "{{ m.content.replace('a', 'c').title().startswith('C') }}{{ 'x'.join(['a', 'b']) }}"
        "{{ [1, 2].index(2) }}{{ (1.0).is_integer() }}{{ messages | map(attribute='role') | join }}"
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
        "{{ m.content | length }}{{ '%s-%s' | format(1, 2) }}{{ '{}'.format(m.role) }}{% endfor %}"
    )
    turns = [{"role": "user", "content": f"<think>x</think>\na{'é' * 9000}b"}] * 200
    assert render_template(source, {"messages": turns})
    assert MADE_TEXT > 10 * 200 * 9000
