"""The changes of inputs: the same from the same seed, and of every part of a file."""

from __future__ import annotations

import json
from random import Random

from tests.fuzz.edits import edit_json, edit_safetensors, edit_text
from tests.fuzz.form import Draw
from tests.fuzz.formats.safetensors import safetensors

DOCUMENT = {"name": "a", "vocab": {f"t{i}": i for i in range(500)}, "deep": {"er": {"est": [1]}}}


def test_a_draw_is_the_same_in_every_run() -> None:
    assert Draw.of("x", 1, 2) == Draw.of("x", 1, 2)
    assert len({Draw.of(name, seed, 2) for name in "xy" for seed in (1, 2)}) == 4


def test_json_is_changed_in_every_part_however_large_others_are() -> None:
    text, changed = json.dumps(DOCUMENT).encode(), set()
    for seed in range(300):
        edited = edit_json(Random(seed), text, broken=0)
        assert edited == edit_json(Random(seed), text, broken=0)
        tree = json.loads(edited)
        parts = DOCUMENT if isinstance(tree, dict) else {}
        changed |= {key for key, part in parts.items() if tree.get(key) != part}
    assert changed == set(DOCUMENT)


def test_known_values_are_put_where_their_key_is() -> None:
    text, known = json.dumps(DOCUMENT).encode(), {"est": ["known"]}
    trees = [json.loads(edit_json(Random(seed), text, known, broken=0)) for seed in range(100)]
    deep = [tree["deep"] for tree in trees if isinstance(tree, dict) and "deep" in tree]
    assert {"er": {"est": "known"}} in deep


def test_broken_json_is_changed_on_as_bytes() -> None:
    for broken in (b"", b"[" * 5000, b"[" * 900 + b"]" * 900, b'{"a": ', b"\xff\xff"):
        assert any(edit_json(Random(seed), broken) != broken for seed in range(9))


def test_a_changed_header_keeps_a_safetensors_file_readable_most_of_the_time() -> None:
    file = safetensors({"a": ("F32", [2, 2])})
    edited = [edit_safetensors(Random(seed), file) for seed in range(100)]
    lengths = [int.from_bytes(data[:8], "little") for data in edited]
    fits = [8 + n <= len(data) for n, data in zip(lengths, edited, strict=True)]
    assert 60 < sum(fits) < 100
    assert len(set(edited)) > 80


def test_words_come_into_texts() -> None:
    edited = [edit_text(Random(seed), b"a b\nc d\n", ["WORD"]) for seed in range(200)]
    assert any(b"WORD" in text for text in edited)
