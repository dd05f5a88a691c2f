"""Small random changes of bytes, texts, JSON and safetensors files."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from tests.fuzz.odd import NUMBERS, RAW, TEXTS, odd_value

#: No change makes a file longer than this.
MOST_BYTES = 4 << 20
_PLACE = "@@raw@@"
#: Containers of more children are sampled, and trees are not looked at below this depth.
_FEW, _DEEPEST = 24, 40
#: JSON of fewer bytes may become many times as long.
_SMALL = 4096
_KEY = re.compile(rb'"([^"\\]{1,40})"\s*:')


def edit_bytes(random: Random, data: bytes) -> bytes:
    """A flipped bit, odd bytes, or a range that is cut out, doubled, moved or cut off."""
    start = random.randrange(len(data) + 1)
    stop = min(len(data), start + int(random.choice((1, 1, 2, 4, 8, 16, 64, 1024))))
    piece = data[start:stop]
    changed = random.choice(
        (
            lambda: bytes([piece[0] ^ 1 << random.randrange(8)]) + piece[1:] if piece else b"\x00",
            lambda: random.randbytes(len(piece)),
            lambda: bytes(len(piece)),
            lambda: b"\xff" * len(piece),
            lambda: random.choice(TEXTS).encode("utf-8", "surrogatepass"),
            lambda: int(random.choice((0, 1, 2**31, 2**63, 2**64 - 1))).to_bytes(8, "little"),
            lambda: piece * random.choice((0, 2, 2, 3, 100)),
        )
    )()
    if random.random() < 0.1:
        return data[:start]
    return (data[:start] + changed + data[stop:])[:MOST_BYTES]


def edit_text(random: Random, data: bytes, words: Sequence[str]) -> bytes:
    """A change of lines or of characters; ``words`` are put in where they may mean something."""
    kind = random.randrange(6)
    if kind == 0:
        return edit_bytes(random, data)
    lines = data.splitlines(keepends=True) or [b""]
    at = random.randrange(len(lines))
    if kind == 1:
        lines[at : at + random.choice((1, 1, 3))] = []
    elif kind == 2:
        lines.insert(random.randrange(len(lines) + 1), lines[at])
    elif kind == 3:
        other = random.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        word = random.choice([*words, *TEXTS]).encode("utf-8", "surrogatepass")
        line = lines[at]
        places = [match.start() for match in re.finditer(rb"\b", line)] or [0]
        start = random.choice(places)
        after = [place for place in places if place > start] if random.random() < 0.6 else []
        lines[at] = line[:start] + word + line[min(after, default=start) :]
    return b"".join(lines)[:MOST_BYTES]


def edit_json(
    random: Random, data: bytes, known: Mapping[str, Sequence[Any]] = {}, *, broken: float = 0.1
) -> bytes:
    """A change of one place of a JSON text; of its bytes where it is none any more.

    Args:
        random: Decides.
        data: The text.
        known: Values worth trying, by key.
        broken: Share of changes that may leave something that is no JSON.
    """
    if random.random() < broken:
        return edit_bytes(random, data)
    if random.random() < 0.05:
        return _double_key(random, data)
    try:
        edited = _edited_tree(random, data, known, broken)
    except (ValueError, RecursionError):  # it is no JSON, or too deep for Python
        return edit_bytes(random, data)
    return edited if len(edited) <= MOST_BYTES else data


def _edited_tree(
    random: Random, data: bytes, known: Mapping[str, Sequence[Any]], broken: float
) -> bytes:
    tree, raw = json.loads(data), ""
    if random.random() < broken:
        raw = random.choice(RAW)
        tree = _replaced(random, tree, lambda _: _PLACE)
    else:
        tree = _edit_tree(random, tree, known)
    lines = len(data) < _SMALL and random.random() < 0.5  # Python writes them far more slowly
    text = json.dumps(tree, indent=1 if lines else None)
    return text.replace(json.dumps(_PLACE), raw).encode()


def _double_key(random: Random, data: bytes) -> bytes:
    """An object with two values for one key."""
    found = list(_KEY.finditer(data))
    if not found:
        return edit_bytes(random, data)
    key = random.choice(found)
    value = json.dumps(odd_value(random)).encode()
    return data[: key.start()] + key[0] + value + b"," + data[key.start() :]


def _edit_tree(random: Random, tree: Any, known: Mapping[str, Sequence[Any]]) -> Any:
    if known and random.random() < 0.3:
        return _with_known(random, tree, known)
    kind = random.randrange(8)
    if kind < 3:
        return _replaced(random, tree, lambda _: odd_value(random))
    if kind < 5:
        return _replaced(random, tree, lambda old: _nudged(random, old))
    if kind < 6:
        donor = copy.deepcopy(random.choice(_walk(random, tree)))
        return _replaced(random, tree, lambda _: donor)
    return _resized(random, tree)


def _with_known(random: Random, tree: Any, known: Mapping[str, Sequence[Any]]) -> Any:
    """One of the known values at its key, mostly in an object that has the key."""
    key = random.choice(sorted(known))
    objects = [node for path in _places(random, tree) if isinstance(node := _at(tree, path), dict)]
    holders = [node for node in objects if key in node]
    if holders and random.random() < 0.8:
        objects = holders
    if objects:
        random.choice(objects)[key] = copy.deepcopy(random.choice(known[key]))
    return tree


def _nudged(random: Random, value: Any) -> Any:
    """A value near to ``value``, or the same one in another type."""
    if isinstance(value, bool) or value is None:
        return random.choice((True, False, None, 0, 1, str(value)))
    if isinstance(value, int | float):
        factor = random.choice((-1, 2, 10, 1000, 10**6))
        step = random.choice((-1, 1, 64, -64))
        return random.choice((value + step, value * factor, str(value), [value], -value))
    if isinstance(value, str):
        edited = edit_bytes(random, value.encode("utf-8", "surrogatepass"))
        text = edited.decode("utf-8", random.choice(("replace", "surrogateescape")))
        return random.choice((text, value * 2, value[1:], [value], {value: value}, value.upper()))
    return random.choice(([value], {"a": value}, str(value), len(value), list(value)))


def _resized(random: Random, tree: Any) -> Any:
    """One container with an element less, more, or many times."""
    containers = [node for node in _walk(random, tree) if isinstance(node, dict | list)]
    if not containers:
        return [tree]
    node = random.choice(containers)
    if isinstance(node, dict):
        if node and random.random() < 0.7:
            del node[random.choice(list(node))]
        else:
            node[random.choice(TEXTS)] = odd_value(random)
    elif node and random.random() < 0.5:
        del node[random.randrange(len(node))]
    elif node and random.random() < 0.5:
        node *= random.choice((2, 3, 1000 if len(json.dumps(node)) < _SMALL else 2))
    else:
        node.insert(random.randrange(len(node) + 1), odd_value(random))
    return tree


def _replaced(random: Random, tree: Any, new: Callable[[Any], Any]) -> Any:
    """The tree with ``new(old)`` at one place, which may be the root."""
    path = _path(random, tree)
    if not path:
        return new(tree)
    node = _at(tree, path[:-1])
    node[path[-1]] = new(node[path[-1]])
    return tree


def _path(random: Random, tree: Any) -> list[Any]:
    """Keys from the root to a random place.

    Half of the time every kind of place is as likely as another, kinds being told apart by their
    keys; else each child of a container is. Neither lets a vocabulary take all the changes.
    """
    if random.random() < 0.5:
        kinds: dict[tuple[Any, ...], list[list[Any]]] = {}
        for path in _places(random, tree):
            kind = tuple(key if isinstance(key, str) else "*" for key in path)
            kinds.setdefault(kind, []).append(path)
        return random.choice(kinds[random.choice(list(kinds))])
    path = []
    while isinstance(tree, dict | list) and tree and random.random() < (0.98 if not path else 0.8):
        path.append(random.choice(_keys(tree)))
        tree = tree[path[-1]]
    return path


def _places(random: Random, tree: Any, path: tuple[Any, ...] = ()) -> list[list[Any]]:
    """Paths of a tree; of containers with many children, those of a few."""
    found = [list(path)]
    if isinstance(tree, dict | list) and len(path) < _DEEPEST:
        keys = _keys(tree)
        for key in keys if len(keys) <= _FEW else random.sample(keys, 3):
            found += _places(random, tree[key], (*path, key))
    return found


def _keys(node: dict[str, Any] | list[Any]) -> list[Any]:
    return list(node) if isinstance(node, dict) else list(range(len(node)))


def _at(tree: Any, path: Sequence[Any]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _walk(random: Random, tree: Any) -> list[Any]:
    """The nodes on the way to a random place, the root first."""
    path = _path(random, tree)
    return [_at(tree, path[:end]) for end in range(len(path) + 1)]


def edit_safetensors(random: Random, data: bytes) -> bytes:
    """A change of the header, its length, or the data of a safetensors file."""
    length = int.from_bytes(data[:8], "little")
    kind = random.randrange(10)
    if kind < 2 or length > len(data) - 8:
        return edit_bytes(random, data)
    header, rest = data[8 : 8 + length], data[8 + length :]
    if kind == 2:
        return header_length(length + random.choice((-1, 1, 8, -8, *map(int, _LENGTHS)))) + data[8:]
    if kind == 3:
        return data[:8] + header + edit_bytes(random, rest)
    header = edit_json(random, header, _HEADER)
    return header_length(len(header)) + header + rest


def header_length(length: int) -> bytes:
    """The eight bytes that a safetensors file begins with."""
    return (length % 2**64).to_bytes(8, "little")


_LENGTHS = [number for number in NUMBERS if isinstance(number, int) and abs(number) < 2**65]
#: Of entries and of the header itself.
_HEADER: dict[str, list[Any]] = {
    "dtype": ["F64", "F32", "F16", "BF16", "I64", "BOOL", "F8_E4M3", "F4", "", "f32", None],
    "shape": [[], [0], [0, 10**18], [2**32, 2**32], [-1], [1.5], ["2"], [float("inf")], [None], 3],
    "data_offsets": [[0, 0], [0], [], [8, 0], [-8, 0], [0, 2**63], [0.0, 8.0], [float("nan"), 1]],
    "__metadata__": [{}, {"format": "pt"}, {"a": 1}, [], None, "x", {"a": {"b": "c"}}],
    "a": [{"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}],
}
